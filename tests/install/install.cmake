# Installs the build tree `build` into `prefix`, from nothing: a header that is no longer installed must not stay.
file(REMOVE_RECURSE ${prefix})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${prefix} COMMAND_ERROR_IS_FATAL ANY)

# Everything lies under bascule/, and no installed header still includes by a path of the source tree.
file(GLOB folders RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT folders STREQUAL "bascule")
  message(FATAL_ERROR "expected only bascule in ${prefix}/include, found: ${folders}")
endif()
file(GLOB_RECURSE headers ${prefix}/include/*.h)
foreach(header IN LISTS headers)
  file(STRINGS ${header} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<](kernels|transport|schemes|sender|receiver)/")
  if(includes)
    message(FATAL_ERROR "${header} includes by a path of the source tree: ${includes}")
  endif()
endforeach()
