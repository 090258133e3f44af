// A scheme's own options, in addition to those that every endpoint has. The scheme lists them in a table
// (Scheme::options) and reads their values itself, so a new option touches only that scheme's folder:
//
//   inline constexpr OptionOf<int> kCtas = {.name = "ctas", .values = "N", .help = …, .needs = …, .parse = parse_ctas};
//   Scheme{.options = {kCtas}, …}                      the registry checks an endpoint's options by the table
//   kCtas.in(endpoint).value_or(0)                     the scheme reads its value
//
// Threads: any; everything here is immutable.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

struct Endpoint;

// A row of a scheme's table.
struct SchemeOption {
  std::string name;    // "ctas"
  std::string values;  // "N", "off|on"
  std::string help;    // what it does, and the default
  std::string needs;   // which schemes have it; ends the text "ctas= needs a scheme …", such as "whose bytes …"
  std::function<absl::Status(std::string_view value)> check;  // INVALID_ARGUMENT says what was expected and found
};

// Returns the value that `endpoint` gives to this option of its scheme, or null.
const std::string* option_value(const Endpoint& endpoint, std::string_view name);

// The same row as the scheme's own code uses it, with the type of the option's values.
template <typename T>
struct OptionOf {
  std::string_view name, values, help, needs;
  absl::StatusOr<T> (*parse)(std::string_view value);

  // Returns the option's value at `endpoint`, or nullopt if none is given. scheme_for() must have checked the endpoint.
  std::optional<T> in(const Endpoint& endpoint) const {
    const std::string* const given = option_value(endpoint, name);
    if (given == nullptr) return std::nullopt;
    absl::StatusOr<T> value = parse(*given);
    return value.ok() ? std::optional<T>(*std::move(value)) : std::nullopt;
  }

  operator SchemeOption() const {  // NOLINT(google-explicit-constructor): a table is a list of these
    return {.name = std::string(name),
            .values = std::string(values),
            .help = std::string(help),
            .needs = std::string(needs),
            .check = [reads = parse](std::string_view value) { return reads(value).status(); }};
  }
};

// Checks `endpoint`'s scheme_options against its scheme's table. Returns INVALID_ARGUMENT, naming the option, if one is
// in no table (the text suggests the nearest known one) or has a wrong value.
absl::Status check_scheme_options(const Endpoint& endpoint, std::span<const SchemeOption> table);

// ---- values ----

// Returns the index of `value` in `names`, or INVALID_ARGUMENT with a list of the names.
absl::StatusOr<std::size_t> one_of(std::span<const std::string_view> names, std::string_view value);
absl::StatusOr<bool> off_or_on(std::string_view value);

}  // namespace bascule::inline v0
