# bascule::bascule: the parts as one static library, without LibTorch, and without CUDA where no toolkit was found; and
# how it is installed.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(parts kernels transport registry memmap shm sender receiver)
if(BASCULE_HAVE_CUDA)
  list(APPEND parts kernels_cuda transport_cuda cuda_ipc)
endif()
add_library(bascule STATIC)
add_library(bascule::bascule ALIAS bascule)
foreach(part IN LISTS parts)
  target_sources(bascule PRIVATE $<TARGET_OBJECTS:bascule_${part}>)
  get_property(links TARGET bascule_${part} PROPERTY BASCULE_SYSTEM_LINKS)
  target_link_libraries(bascule PUBLIC ${links})
  get_property(links TARGET bascule_${part} PROPERTY BASCULE_BINARY_LINKS)
  target_link_libraries(bascule PRIVATE ${links})
endforeach()
set(seen_by_users kernels transport sender receiver)
if(BASCULE_HAVE_CUDA)
  list(APPEND seen_by_users kernels_cuda transport_cuda)
endif()
foreach(part IN LISTS seen_by_users)  # and not the schemes: nobody but the registry names one
  target_include_directories(bascule INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include/${part}>)
endforeach()
target_include_directories(bascule INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(bascule PUBLIC cxx_std_20)

# bascule_internals: the same library for the tests of the parts, which see every folder.
add_library(bascule_internals INTERFACE)
target_link_libraries(bascule_internals INTERFACE bascule)
foreach(part IN LISTS parts)
  target_include_directories(bascule_internals INTERFACE ${PROJECT_BINARY_DIR}/include/${part})
endforeach()

# Header-only: the user brings LibTorch.
add_library(bascule_libtorch_adaptor INTERFACE)
add_library(bascule::libtorch ALIAS bascule_libtorch_adaptor)
set_target_properties(bascule_libtorch_adaptor PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(bascule_libtorch_adaptor INTERFACE bascule)
target_include_directories(bascule_libtorch_adaptor INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include/libtorch>)

install(TARGETS bascule bascule_libtorch_adaptor EXPORT basculeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS bascule-status RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT basculeTargets NAMESPACE bascule:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bascule)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/basculeConfig.cmake.in ${PROJECT_BINARY_DIR}/basculeConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bascule)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/basculeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/basculeConfig.cmake ${PROJECT_BINARY_DIR}/basculeConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/bascule)

# Headers are installed under bascule/, and their includes of each other are given that prefix, so that no folder with
# a common name lands on a user's include path.
foreach(part IN LISTS parts ITEMS libtorch)
  get_property(folder TARGET bascule_${part} PROPERTY BASCULE_FOLDER)
  get_property(headers TARGET bascule_${part} PROPERTY BASCULE_HEADERS)
  get_property(source_dir TARGET bascule_${part} PROPERTY BASCULE_SOURCE_DIR)
  foreach(header IN LISTS headers)
    install(CODE "
      file(READ \"${source_dir}/${header}\" text)
      string(REGEX REPLACE \"#include \\\"(kernels|transport|schemes|sender|receiver)/\"
             \"#include \\\"bascule/\\\\1/\" text \"\${text}\")
      file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/bascule/${folder}/${header}\" \"\${text}\")")
  endforeach()
endforeach()
