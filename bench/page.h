// The results as one page for a browser, with its style, code and data inside.
#pragma once

#include <string>

#include <bascule/bench/record.h>

namespace bascule::bench {

// page.html with the JSON of --json in it.
std::string page_of(const Results& results);

}  // namespace bascule::bench
