# Installs the build tree `build` into an empty `prefix`: a header that is no longer installed must not stay.
file(REMOVE_RECURSE ${prefix})
# Uses a umask that lets no other user read: installed files must get their own modes.
execute_process(COMMAND sh -c "umask 077 && exec \"$@\"" sh ${CMAKE_COMMAND} --install ${build} --prefix ${prefix}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND find ${prefix} ! -perm -a=r -o -type d ! -perm -a=x OUTPUT_VARIABLE unreadable COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND find ${prefix} -type l OUTPUT_VARIABLE links COMMAND_ERROR_IS_FATAL ANY)
if(unreadable OR links)
  message(FATAL_ERROR "expected files that all may read, and no links, found:\n${unreadable}${links}")
endif()

# Everything lies under bascule/, and no header includes by a path that only the source tree knows.
file(GLOB folders RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT folders STREQUAL "bascule")
  message(FATAL_ERROR "expected only bascule in ${prefix}/include, found: ${folders}")
endif()
file(GLOB_RECURSE headers ${prefix}/include/*.h)
foreach(header IN LISTS headers)
  file(STRINGS ${header} includes REGEX "^[ \t]*#[ \t]*include[ \t]*([\"<](kernels|transport|schemes|sender|receiver)/|\"bascule/)")
  if(includes)
    message(FATAL_ERROR "${header} includes by a path of the source tree: ${includes}")
  endif()
endforeach()
