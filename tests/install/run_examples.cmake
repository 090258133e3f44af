# Runs the two examples of folder `bin` at once, as docs/guide/cpp.md does, and checks what they print.
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND sh -c "exec ${bin}/example-trainer shm://${folder}/endpoint >&2"  # else CMake pipes it into the engine
  COMMAND ${bin}/example-engine shm://${folder}/endpoint engine-0
  TIMEOUT 60 RESULTS_VARIABLE results OUTPUT_VARIABLE output)
file(REMOVE_RECURSE ${folder})
message("${output}")
if(NOT results STREQUAL "0;0" OR NOT output MATCHES "serving version [0-9]+: bias\\[0\\] = -6")
  message(FATAL_ERROR "expected both examples to end with 0 and the engine to serve bias -6, found ${results}")
endif()
