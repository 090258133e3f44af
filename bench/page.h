// The results as one page for a browser, with its style, code and data inside.
#pragma once

#include <string>

#include <bascule/bench/record.h>

namespace bascule::bench {

// Returns page.html with the JSON of --json inserted.
std::string page_of(const Results& results);

}  // namespace bascule::bench
