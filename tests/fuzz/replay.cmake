# Fuzz targets that run the kept inputs, as tests of the preset asan: the programs fuzz-NAME, without libFuzzer. They link
# the libraries that the other tests link, so nothing is compiled for them but themselves.
add_custom_target(fuzz-replays)
add_library(bascule_fuzz_replay STATIC EXCLUDE_FROM_ALL replay_main.cpp)
target_link_libraries(bascule_fuzz_replay PRIVATE bascule_flags)

# fuzz_target(NAME [SOURCES ...] ...): the program, its inputs unpacked, and the test fuzz.NAME.
function(fuzz_target name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(fuzz-${name} EXCLUDE_FROM_ALL ${name}.cpp ${FUZZ_SOURCES})
  target_include_directories(fuzz-${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(fuzz-${name} PRIVATE bascule_fuzz_replay bascule_ref_engine_http bascule_ref_reward
    bascule_program bascule_internals GTest::gmock bascule_flags bascule_test_flags)
  bascule_precompiled(fuzz-${name} tests)  # with GoogleTest's headers, and so its flags

  set(inputs ${CMAKE_CURRENT_BINARY_DIR}/inputs/${name})
  add_custom_command(OUTPUT ${inputs}.unpacked DEPENDS corpus/${name}.zip
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${inputs}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${inputs}
    COMMAND ${CMAKE_COMMAND} -E chdir ${inputs} ${CMAKE_COMMAND} -E tar x ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}.zip
    COMMAND ${CMAKE_COMMAND} -E touch ${inputs}.unpacked)
  target_sources(fuzz-${name} PRIVATE ${inputs}.unpacked)
  add_test(NAME fuzz.${name} COMMAND fuzz-${name} ${inputs})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 400)
  add_dependencies(fuzz-replays fuzz-${name})
endfunction()
