// A flag type for values that a user gives one by one: --adapter=a=DIR --adapter=b=DIR. Parsed as a list, separated by
// commas; parse_flags() joins what the command line repeats.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace bascule::inline v0 {

struct Repeated {
  std::vector<std::string> values{};
};

// NOLINTBEGIN(readability-identifier-naming): Abseil's hooks
bool AbslParseFlag(absl::string_view text, Repeated* repeated, std::string* error);
std::string AbslUnparseFlag(const Repeated& repeated);
// NOLINTEND(readability-identifier-naming)

}  // namespace bascule::inline v0
