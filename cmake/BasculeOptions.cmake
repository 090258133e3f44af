# Build options, and the flags that follow from them.
set(BASCULE_CUDA AUTO CACHE STRING "CUDA schemes: AUTO (if a toolkit is found), ON, OFF")
set(BASCULE_LIBTORCH AUTO CACHE STRING "Reference trainer and engine: AUTO (if LibTorch is found), ON, OFF")
option(BASCULE_BUILD_PROGRAMS "Build bascule-status, bascule-token and, with LibTorch, bascule-train and bascule-engine" ${PROJECT_IS_TOP_LEVEL})
option(BASCULE_BUILD_BENCH "Build bascule-bench" ${PROJECT_IS_TOP_LEVEL})
option(BASCULE_BUILD_TESTS "Build the tests of the targets that are built" ${PROJECT_IS_TOP_LEVEL})
option(BASCULE_BUILD_FUZZERS "Build the fuzz targets as programs that search; needs clang 14, and the settings of the preset fuzz" OFF)
option(BASCULE_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(BASCULE_WERROR "Treat warnings as errors; a newer compiler may have new warnings" OFF)
option(BASCULE_PRECOMPILED_HEADERS "Parse other libraries' headers once per build" ${PROJECT_IS_TOP_LEVEL})
set(BASCULE_SANITIZE "" CACHE STRING "Sanitizers to build with, as in -fsanitize=...")
foreach(choice BASCULE_CUDA BASCULE_LIBTORCH)
  set_property(CACHE ${choice} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${choice}}" value)
  if(NOT value MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${choice}=${${choice}}: expected AUTO, ON or OFF")
  endif()
  set(${choice} ${value})
endforeach()

# The library is static, with position-independent code, so it links into programs and shared libraries.
if(BUILD_SHARED_LIBS AND PROJECT_IS_TOP_LEVEL)
  message(FATAL_ERROR "BUILD_SHARED_LIBS=ON: expected OFF, since Bascule exports no symbols. Its static library has "
                      "position-independent code: link it into your own shared library")
endif()

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

# With the source folder as its base, ccache finds objects that another checkout compiled. It is tried first: if its
# folder cannot be written, every compilation would fail.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  string(RANDOM unseen)  # new to ccache, so that it has to write
  file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/ccache_trial.cpp "int trial_${unseen};\n")
  execute_process(
    COMMAND ${launcher} ${CMAKE_CXX_COMPILER} -c ${PROJECT_BINARY_DIR}/CMakeFiles/ccache_trial.cpp
            -o ${PROJECT_BINARY_DIR}/CMakeFiles/ccache_trial.o
    RESULT_VARIABLE failed ERROR_VARIABLE why OUTPUT_QUIET)
  if(failed)
    message(STATUS "ccache is not used, since a trial of it failed: ${why}")
  else()
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()

# Flags for our own sources only; they never reach a user's project.
add_library(bascule_flags INTERFACE)
target_compile_options(bascule_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion $<$<BOOL:${BASCULE_WERROR}>:-Werror>>)
# A Release build optimises the tests' own code less, a sanitized build not at all; it then compiles in two thirds of
# the time. UndefinedBehaviorSanitizer would take another third, and the tests' own code is not what it is for.
add_library(bascule_test_flags INTERFACE)
target_compile_options(bascule_test_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
if(BASCULE_SANITIZE)
  target_compile_options(bascule_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endif()
if(BASCULE_SANITIZE MATCHES undefined)
  target_compile_options(bascule_test_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
endif()
if(BASCULE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's manual warns that sanitizers confuse this warning; it sees an empty boost::optional read in Beast's parser.
  target_compile_options(bascule_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 at -O3 reports these falsely in the standard library's strings and vectors (its bug 105329), and at -O1 the
  # last one in Asio's coroutines, whose frames have their own operator new and delete, of which it inlines one.
  target_compile_options(bascule_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-mismatched-new-delete>)
endif()
if(BASCULE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC looks for garbage whenever its heap has grown by a third, in an eighth of its time. It now waits for a gigabyte,
  # which machines of users may not have per processor.
  target_compile_options(bascule_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1000000>")
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Several sources of a target are compiled at once (CMakePresets.json), in a third of the time. An included source
  # looks like a header to GCC, which then warns of classes that other sources cannot see.
  target_compile_options(bascule_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(BASCULE_SANITIZE)
  # For all targets: every object and the link must agree on a sanitizer.
  add_compile_options(-fsanitize=${BASCULE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BASCULE_SANITIZE})
  if(BASCULE_SANITIZE MATCHES undefined)
    # These take a seventh of the compiler's time. AddressSanitizer reports an access through a null pointer, or beyond
    # an object.
    add_compile_options(-fno-sanitize=null,object-size)
  endif()
  # A sanitized program has a million addresses that each start of a position-independent one would relocate.
  add_link_options(-no-pie)
  find_program(BASCULE_LLD ld.lld)  # links in a third of the time
  mark_as_advanced(BASCULE_LLD)
  if(BASCULE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
  if(BASCULE_SANITIZE MATCHES thread)
    # TSan does not support fences. Asio's locks order its handlers without them.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
if(BASCULE_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "BASCULE_BUILD_FUZZERS=ON: expected clang, whose libFuzzer it needs, found ${CMAKE_CXX_COMPILER_ID}; use the preset fuzz")
  endif()
  # clang 14 can compile the coroutines of libstdc++ 12, but neither tells the other, nor Asio.
  add_compile_definitions(__cpp_impl_coroutine=201902L BOOST_ASIO_HAS_CO_AWAIT BOOST_ASIO_HAS_STD_COROUTINE)
  # `function` breaks coroutines. The others take much of the compiler's time, and the preset asan has them.
  add_compile_options(-fno-sanitize=function,vptr,alignment)
endif()
