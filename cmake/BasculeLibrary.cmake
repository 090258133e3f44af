# bascule::bascule: the parts as one static library, without LibTorch, and without CUDA if no toolkit was found; and its
# install rules.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(parts kernels transport registry auto auto_on_gpus cuda_ipc deliveries memmap nccl relay shm sender receiver base)
if(BASCULE_HAVE_CUDA)
  list(APPEND parts kernels_cuda transport_cuda)
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
set(seen_by_users kernels transport sender receiver base)
if(BASCULE_HAVE_CUDA)
  list(APPEND seen_by_users kernels_cuda transport_cuda)
endif()
foreach(part IN LISTS seen_by_users)  # not the schemes: only the registry names one
  target_include_directories(bascule INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include/${part}>)
endforeach()
target_include_directories(bascule INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(bascule PUBLIC cxx_std_20)

# bascule_internals: the same library for the parts' tests, which see every folder.
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

if(NOT BASCULE_INSTALL)
  return()
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bascule)
# install() sets files' modes, but the umask restricts the folders that it makes. So the shared ones that are missing are
# made first, and Bascule's own folders get their modes at the end.
set(folder_modes DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
list(JOIN folder_modes " " folder_modes)
foreach(folder ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/cmake ${CMAKE_INSTALL_INCLUDEDIR})
  install(CODE "
    set(path \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\")
    set(missing)
    while(NOT EXISTS \"\${path}\")
      list(APPEND missing \"\${path}\")
      get_filename_component(path \"\${path}\" DIRECTORY)
    endwhile()
    if(missing)
      file(MAKE_DIRECTORY \${missing})
      file(CHMOD \${missing} ${folder_modes})
    endif()")
endforeach()
install(TARGETS bascule bascule_libtorch_adaptor EXPORT basculeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(BASCULE_BUILD_PROGRAMS)
  install(TARGETS bascule-status bascule-token RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT basculeTargets NAMESPACE bascule:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/basculeConfig.cmake.in ${PROJECT_BINARY_DIR}/basculeConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/basculeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/basculeConfig.cmake ${PROJECT_BINARY_DIR}/basculeConfigVersion.cmake
  DESTINATION ${package_dir})

# Headers are installed unchanged: in the tree and installed, they include <bascule/FOLDER/header.h>.
foreach(part IN LISTS parts ITEMS libtorch)
  get_property(folder TARGET bascule_${part} PROPERTY BASCULE_FOLDER)
  get_property(headers TARGET bascule_${part} PROPERTY BASCULE_HEADERS)
  get_property(source_dir TARGET bascule_${part} PROPERTY BASCULE_SOURCE_DIR)
  foreach(header IN LISTS headers)
    get_filename_component(subfolder ${header} DIRECTORY)
    install(FILES ${source_dir}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bascule/${folder}/${subfolder})
  endforeach()
endforeach()
foreach(folder ${package_dir} ${CMAKE_INSTALL_INCLUDEDIR}/bascule)
  install(CODE "
    file(CHMOD_RECURSE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\"
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ ${folder_modes})")
endforeach()
