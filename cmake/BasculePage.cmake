# bascule_page(VARIABLE FILE): sets VARIABLE to an HTML page's text, and replaces /*THEME*/ and /*PLOT*/ in it by the
# theme and drawing functions in transport/program/page. Pages share these, and each page is one file that loads
# nothing.
function(bascule_page variable file)
  set(folder ${PROJECT_SOURCE_DIR}/transport/program/page)
  file(READ ${file} page)
  foreach(part THEME:theme.css PLOT:plot.js)
    string(REPLACE ":" ";" part ${part})
    list(GET part 0 mark)
    list(GET part 1 name)
    file(READ ${folder}/${name} text)
    string(REPLACE "/*${mark}*/\n" "${text}" page "${page}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(${variable} "${page}" PARENT_SCOPE)
endfunction()
