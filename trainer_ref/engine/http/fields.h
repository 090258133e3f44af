// The fields of a request's JSON object, each read once.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/status.h>

namespace bascule::ref {

std::string shown(const nlohmann::json& value);  // for an error's text, cut if it is long
std::string shown(const nlohmann::ordered_json& value);

// A field that is null counts as missing. After the first refusal no field is read.
class Fields {
 public:
  using Json = nlohmann::json;

  explicit Fields(const Json& object) : object_(object) {}  // `object` must outlive this

  absl::Status status;  // INVALID_ARGUMENT: "FIELD: expected ..., found ..."

  const Json* find(const char* field);                                     // null if it is missing
  bool names(const char* field) const { return object_.contains(field); }  // perhaps as null

  // A number without a fraction may also be written as 2.0: languages that only have floats do so.
  template <std::integral T>
  void integer(const char* field, T& value, T low, T high) {
    const Json* given = find(field);
    if (given == nullptr) return;
    const Json whole = without_fraction(*given);
    if (!whole.is_null()) given = &whole;
    const bool fits = given->is_number_unsigned()
                          ? given->get<std::uint64_t>() <= static_cast<std::uint64_t>(high) &&
                                (low <= 0 || given->get<std::uint64_t>() >= static_cast<std::uint64_t>(low))
                          : given->is_number_integer() && std::cmp_greater_equal(given->get<std::int64_t>(), low);
    if (!fits) return refuse(field, *find(field), cat("an integer from ", low, " to ", high));
    value = given->get<T>();
  }
  void number(const char* field, double& value, double low, double high);
  void boolean(const char* field, bool& value);

  // Fields of other servers that have no effect at one of these values; any other value is refused.
  void neutral(const char* field, const std::vector<Json>& values);
  // Fields that have no effect here at any value.
  void accept(std::span<const char* const> fields);

  void refuse(std::string_view field, const Json& found, std::string_view expected);
  void refuse(absl::Status why);

  // Returns the fields that were never read, because they are unknown here.
  std::vector<std::string> unread() const;
  // Adds the unread fields of an object in `field`, as "field.name".
  void add_unread(std::string_view field, const Fields& inner);

 private:
  // The integer that a float is; null if it is none, or not surely the one that the text had.
  static Json without_fraction(const Json& number);

  const Json& object_;
  std::set<std::string_view> read_;
  std::vector<std::string> unread_inside_;
};

}  // namespace bascule::ref
