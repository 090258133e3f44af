# Checks that the listings of docs/guide/cpp.md are the examples, to the letter.
file(READ ${source}/docs/guide/cpp.md page)
foreach(example trainer engine)
  file(READ ${source}/examples/${example}.cpp text)
  string(FIND "${page}" "```cpp\n${text}```" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "docs/guide/cpp.md does not hold examples/${example}.cpp as it stands; copy it there")
  endif()
endforeach()
