# What a person may choose, and the flags that follow from it.
set(BASCULE_CUDA AUTO CACHE STRING "CUDA schemes: AUTO (where a toolkit is found), ON, OFF")
set(BASCULE_LIBTORCH AUTO CACHE STRING "Reference trainer and engine: AUTO (where LibTorch is found), ON, OFF")
option(BASCULE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(BASCULE_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
set(BASCULE_SANITIZE "" CACHE STRING "Sanitizers to build with, as in -fsanitize=...")
foreach(choice BASCULE_CUDA BASCULE_LIBTORCH)
  set_property(CACHE ${choice} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${choice}}" value)
  if(NOT value MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${choice}=${${choice}}: expected AUTO, ON or OFF")
  endif()
  set(${choice} ${value})
endforeach()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# With the source folder as its base, ccache finds what another checkout compiled.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()

# Flags of our own sources only: a user's project is never touched by them.
add_library(bascule_flags INTERFACE)
target_compile_options(bascule_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion $<$<BOOL:${BASCULE_WERROR}>:-Werror>>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 at -O3 sees these in the standard library's own strings and vectors, where they are not (its bug 105329).
  target_compile_options(bascule_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread>)
endif()
if(BASCULE_SANITIZE)
  # Not only our own: every object and the link must agree on a sanitizer.
  add_compile_options(-fsanitize=${BASCULE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BASCULE_SANITIZE})
  if(BASCULE_SANITIZE MATCHES thread)
    # TSan does not know fences. Asio's locks order its handlers without them.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
