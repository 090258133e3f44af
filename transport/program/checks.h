// Checks that parsed flags have values that make sense. Each error names the flag, its value and acceptable ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// Turns `status`, an error about the file, folder or text that a flag names, into an error of the flag: "--model=/x: no
// such folder; ADVICE". Errors caused by the value become INVALID_ARGUMENT; others (no memory, a failing disk) keep
// their code.
inline absl::Status of_flag(const absl::Status& status, std::string_view flag, std::string_view value,
                            std::string_view advice) {
  if (status.ok()) return status;
  std::string_view why = message_of(status);
  if (const std::string named = cat(value, ": "); why.starts_with(named)) why.remove_prefix(named.size());
  const std::string text = cat("--", flag, "=", value, ": ", why, "; ", advice);
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied: return absl::InvalidArgumentError(text);
    default: return {status.code(), text};
  }
}

// Keeps the first error: `FlagChecks checks; checks.at_least("n", n, 1); return checks.status();`
class FlagChecks {
 public:
  // Also refuses infinities and NaN.
  template <typename T>
  FlagChecks& at_least(std::string_view flag, T value, T low) {
    return that(is_finite(value) && value >= low, flag, value, "give ", low, " or more, as --", flag, "=",
                low > T{0} ? low : low + T{1});
  }
  FlagChecks& above_zero(std::string_view flag, double value, double example, double high) {
    return that(value > 0 && value <= high, flag, value, "give a number above 0, at most ", high, ", as --", flag, "=",
                example);
  }

  template <typename T>
  FlagChecks& between(std::string_view flag, T value, T low, T high) {
    return between(flag, value, low, high, low > T{0} ? low : high);
  }
  template <typename T>
  FlagChecks& between(std::string_view flag, T value, T low, T high, T example) {
    return that(is_finite(value) && value >= low && value <= high, flag, value, "give a value from ", low, " to ", high,
                ", as --", flag, "=", example);
  }

  FlagChecks& positive_time(std::string_view flag, absl::Duration value, std::string_view example) {
    return that(value > absl::ZeroDuration() && value < absl::InfiniteDuration(), flag, absl::FormatDuration(value),
                "give a finite time above 0, as --", flag, "=", example);
  }

  FlagChecks& one_of(std::string_view flag, std::string_view value, std::initializer_list<std::string_view> choices) {
    std::string list;
    for (std::string_view choice : choices) list.append(list.empty() ? "" : ", ").append(choice);
    return that(std::find(choices.begin(), choices.end(), value) != choices.end(), flag, value, "give one of ", list,
                ", as --", flag, "=", *choices.begin());
  }

  FlagChecks& not_empty(std::string_view flag, std::string_view value, std::string_view what,
                        std::string_view example) {
    return that(!value.empty(), flag, "", "give ", what, ", as --", flag, "=", example);
  }

  // The parts of `advice`, streamed one after the other, say what would make sense.
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
  template <typename T>
  static bool is_finite(T value) {
    if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
    return true;
  }

  absl::Status status_;
};

}  // namespace bascule::inline v0
