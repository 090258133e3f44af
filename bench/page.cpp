#include <bascule/bench/page.h>

#include <string_view>

#include "absl/strings/str_replace.h"

namespace bascule::bench {

extern const std::string_view kPageTemplate;  // page.html, as CMake embeds it

std::string page_of(const Results& results) {
  constexpr std::string_view kPlace = "{\"results\": \"go here\"}";
  std::string page(kPageTemplate);
  // "</script>" within a text would end the element that holds the data.
  const std::string json = absl::StrReplaceAll(to_json(results), {{"</", "<\\/"}});
  page.replace(page.find(kPlace), kPlace.size(), json);
  return page;
}

}  // namespace bascule::bench
