// Checks of values that parsed but may make no sense; each refusal says which flag, what it was and what
// would do.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::ref {

// Collects the first refusal: `FlagChecks checks; checks.at_least("n", n, 1); return checks.status();`
class FlagChecks {
 public:
  template <typename T>
  FlagChecks& at_least(std::string_view flag, T value, T low) {
    return that(value >= low, flag, value, "give ", low, " or more");
  }

  template <typename T>
  FlagChecks& between(std::string_view flag, T value, T low, T high) {
    return that(value >= low && value <= high, flag, value, "give a value from ", low, " to ", high);
  }

  FlagChecks& one_of(std::string_view flag, std::string_view value, std::initializer_list<std::string_view> choices) {
    std::string list;
    for (std::string_view choice : choices) list.append(list.empty() ? "" : ", ").append(choice);
    return that(std::find(choices.begin(), choices.end(), value) != choices.end(), flag, value, "give one of ", list);
  }

  FlagChecks& not_empty(std::string_view flag, std::string_view value, std::string_view what) {
    return that(!value.empty(), flag, "", "give ", what);
  }

  // `advice` is streamed together: what would make sense.
  template <typename T, typename... Advice>
  FlagChecks& that(bool makes_sense, std::string_view flag, const T& value, const Advice&... advice) {
    if (makes_sense || !status_.ok()) return *this;
    std::ostringstream text;
    text << "--" << flag << "=" << value << ": ";
    (text << ... << advice);
    status_ = absl::InvalidArgumentError(text.str());
    return *this;
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace bascule::ref
