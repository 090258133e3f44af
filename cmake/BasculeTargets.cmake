# bascule_part(NAME [STATIC] [TORCH] [FOLDER folder] HEADERS ... PRIVATE_HEADERS ... SOURCES ...
#              LINKS ... SYSTEM_LINKS ... BINARY_LINKS ... PRIVATE_LINKS ...)
#
# Makes one folder of the tree one target, bascule_NAME. A part can include only the parts that it links: each part has
# its own include root in the build tree, include/NAME/bascule/FOLDER, which holds only links to its headers. So an
# include against the arrows of docs/design/architecture.md does not compile. A header is always
# <bascule/FOLDER/header.h>.
#   STATIC            a separate library, for parts outside bascule::bascule (objects are not passed on)
#   TORCH             its sources include LibTorch
#   HEADERS           headers for users; they are installed
#   PRIVATE_HEADERS   headers for other parts and tests only; they are not installed
#   LINKS             other parts, by NAME; their headers are passed on
#   SYSTEM_LINKS      libraries that its HEADERS need; users also link them
#   BINARY_LINKS      libraries that only its SOURCES include, but that users' programs must link
#   PRIVATE_LINKS     targets that no user of the part may see: header-only libraries, or bascule_NAME of a part
function(bascule_part name)
  cmake_parse_arguments(PART "STATIC;TORCH" "FOLDER"
    "SOURCES;HEADERS;PRIVATE_HEADERS;LINKS;SYSTEM_LINKS;BINARY_LINKS;PRIVATE_LINKS" ${ARGN})
  if(NOT PART_FOLDER)
    set(PART_FOLDER ${name})
  endif()
  set(root ${PROJECT_BINARY_DIR}/include/${name})
  file(REMOVE_RECURSE ${root})  # a header that left the part must not stay reachable
  foreach(header IN LISTS PART_HEADERS PART_PRIVATE_HEADERS)
    set(link ${root}/bascule/${PART_FOLDER}/${header})
    get_filename_component(folder ${link} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${header} ${link} SYMBOLIC)
  endforeach()

  set(target bascule_${name})
  if(PART_SOURCES)
    set(kind OBJECT)
    if(PART_STATIC)
      set(kind STATIC)
    endif()
    add_library(${target} ${kind} ${PART_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE bascule_flags)
    if(PART_TORCH)
      bascule_precompiled(${target} torch)
    elseif(PART_SYSTEM_LINKS MATCHES "absl|bascule::bascule|transport" OR PART_LINKS)  # kernels do not use Abseil
      bascule_precompiled(${target} core)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${root}>)
  list(TRANSFORM PART_LINKS PREPEND bascule_)
  target_link_libraries(${target} ${scope} ${PART_LINKS} ${PART_SYSTEM_LINKS})
  if(PART_PRIVATE_LINKS OR PART_BINARY_LINKS)
    target_link_libraries(${target} PRIVATE ${PART_PRIVATE_LINKS} ${PART_BINARY_LINKS})
  endif()
  set_property(GLOBAL APPEND PROPERTY BASCULE_PARTS ${name})
  set(witness ${PART_HEADERS} ${PART_PRIVATE_HEADERS})  # tests/arrows includes the first
  if(witness)
    list(GET witness 0 witness)
    set_property(TARGET ${target} PROPERTY BASCULE_WITNESS bascule/${PART_FOLDER}/${witness})
  endif()
  set_property(TARGET ${target} PROPERTY BASCULE_SYSTEM_LINKS ${PART_SYSTEM_LINKS})
  set_property(TARGET ${target} PROPERTY BASCULE_BINARY_LINKS ${PART_BINARY_LINKS})
  set_property(TARGET ${target} PROPERTY BASCULE_FOLDER ${PART_FOLDER})
  set_property(TARGET ${target} PROPERTY BASCULE_HEADERS ${PART_HEADERS})
  set_property(TARGET ${target} PROPERTY BASCULE_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()
