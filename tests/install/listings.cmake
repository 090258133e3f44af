# README's listings are the examples, to the letter.
file(READ ${source}/README.md readme)
foreach(example trainer engine)
  file(READ ${source}/examples/${example}.cpp text)
  string(FIND "${readme}" "```cpp\n${text}```" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "README.md does not hold examples/${example}.cpp as it stands; copy it there")
  endif()
endforeach()
