// Options of one scheme. A scheme has a table of them (Scheme::options), in addition to the options of every endpoint,
// and reads their values itself. So a new option touches only that scheme's folder:
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
  std::string needs;   // which schemes have it, as the end of "ctas= needs a scheme …": "whose bytes …"
  std::function<absl::Status(std::string_view value)> check;  // INVALID_ARGUMENT says what was expected and found
};

// The value that `endpoint` gives to an option of its scheme, or null.
const std::string* option_value(const Endpoint& endpoint, std::string_view name);

// The same row for the scheme's own code, which knows the type of its values.
template <typename T>
struct OptionOf {
  std::string_view name, values, help, needs;
  absl::StatusOr<T> (*parse)(std::string_view value);

  // The option's value at an endpoint that scheme_for() has checked, or nullopt if the endpoint gives none.
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

// Checks the options of `endpoint` that are not common against its scheme's table. INVALID_ARGUMENT names an option
// that is in no table (with the nearest known one) or whose value is wrong.
absl::Status check_scheme_options(const Endpoint& endpoint, std::span<const SchemeOption> table);

// ---- values ----

// The index of `value` in `names`. INVALID_ARGUMENT lists the names.
absl::StatusOr<std::size_t> one_of(std::span<const std::string_view> names, std::string_view value);
absl::StatusOr<bool> off_or_on(std::string_view value);

}  // namespace bascule::inline v0
