// JsonValue: JSON from outside as a tree, for threads that must survive without memory. If memory runs out while it is
// read, std::bad_alloc leaves nothing behind, and destroying it needs none. (A tree of nlohmann::json allocates when it
// is destroyed, and cannot report that.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // sorted by key

  // Like parse_json() of transport/json.h, with the same limits and errors.
  static absl::StatusOr<JsonValue> parse(std::string_view text, std::string_view where);

  JsonValue() = default;  // null
  template <typename T>
  explicit JsonValue(T value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Null if this is another kind of value. A number that is negative or no integer is not unsigned.
  const std::uint64_t* as_unsigned() const { return std::get_if<std::uint64_t>(&value_); }
  const std::string* as_text() const { return std::get_if<std::string>(&value_); }
  const Array* as_array() const { return std::get_if<Array>(&value_); }
  const Object* as_object() const { return std::get_if<Object>(&value_); }
  Array* as_array() { return std::get_if<Array>(&value_); }
  Object* as_object() { return std::get_if<Object>(&value_); }

  const JsonValue* find(std::string_view key) const;  // null if this is no object, or has no such key
  std::string_view type_name() const;                 // "object", for error texts

 private:
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array, Object> value_;
};

// Appends `text`, which must be UTF-8, as a JSON string with its quotes.
void append_json_string(std::string& to, std::string_view text);

}  // namespace bascule::inline v0
