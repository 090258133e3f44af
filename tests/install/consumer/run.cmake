# Runs the two programs of folder `bin` at once, as two processes, and checks that they load neither LibTorch nor CUDA.
# A build with CUDA (`cuda`) may load its runtime, but never the driver's library.
set(never "torch|c10|cuda|cudart")
if(cuda)
  set(never "torch|c10|libcuda\\.so")
endif()
foreach(program consumer-sender consumer-receiver)
  execute_process(COMMAND ldd ${bin}/${program} OUTPUT_VARIABLE libraries COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\\(0x[0-9a-f]+\\)" "" libraries "${libraries}")  # an address may hold any letters
  if(libraries MATCHES "${never}")
    message(FATAL_ERROR "${program} expected to link nothing that matches ${never}, links:\n${libraries}")
  endif()
endforeach()

foreach(scheme shm pull push behind kept)  # all but the first are the user's own
  # A socket's path must be short, so the folder does not lie below the build tree.
  execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(
    COMMAND ${bin}/consumer-sender ${scheme}://${folder}/endpoint
    COMMAND ${bin}/consumer-receiver ${scheme}://${folder}/endpoint
    TIMEOUT 60 RESULTS_VARIABLE results OUTPUT_VARIABLE output)
  file(REMOVE_RECURSE ${folder})
  message("${output}")
  if(NOT results STREQUAL "0;0")
    message(FATAL_ERROR "${scheme}: expected sender and receiver to end with 0, found ${results}")
  endif()
endforeach()
