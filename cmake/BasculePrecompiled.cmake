# bascule_precompiled(TARGET core|tests|torch): headers of other libraries that nearly every source includes, parsed once in
# each build; torch: LibTorch's, for libraries, programs and tests alike. No header of ours is among them, so a change here
# never recompiles them. Each source still includes all that it uses: scripts/tidy compiles without them.
set(standard <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <filesystem>
    <functional> <map> <memory> <mutex> <optional> <random> <set> <span> <string> <string_view> <thread> <utility>
    <vector>)
set(abseil <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>
    <absl/time/time.h>)

function(bascule_precompile name)  # a target that holds them; its flags must be those of the targets that use them
  file(CONFIGURE OUTPUT precompiled_${name}.cpp CONTENT "")
  add_library(bascule_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/precompiled_${name}.cpp)
  target_link_libraries(bascule_precompiled_${name} PRIVATE bascule_flags)
  target_precompile_headers(bascule_precompiled_${name} PRIVATE ${ARGN})
endfunction()

if(BASCULE_PRECOMPILED_HEADERS)
  bascule_precompile(core ${standard} ${abseil})
  if(BASCULE_HAVE_LIBTORCH)
    bascule_precompile(torch ${standard} ${abseil} <ATen/ATen.h>)
    target_link_libraries(bascule_precompiled_torch PRIVATE bascule::torch)
  endif()
  if(BASCULE_BUILD_TESTS)
    find_package(GTest REQUIRED)
    bascule_precompile(tests ${standard} ${abseil} <gmock/gmock.h> <gtest/gtest.h>)
    # Test programs are executables, and compiled as bascule_test() says.
    set_target_properties(bascule_precompiled_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(bascule_precompiled_tests PRIVATE -fPIE)
    target_link_libraries(bascule_precompiled_tests PRIVATE GTest::gmock bascule_test_flags)
  endif()
endif()

function(bascule_precompiled target set)
  if(TARGET bascule_precompiled_${set})
    target_precompile_headers(${target} REUSE_FROM bascule_precompiled_${set})
    get_target_property(kind ${target} TYPE)
    if(set STREQUAL "torch" AND kind STREQUAL "EXECUTABLE")  # compiled as libraries are, to share theirs
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
    endif()
  endif()
endfunction()
