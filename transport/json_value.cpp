#include <bascule/transport/json_value.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>

#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// Builds the tree. Only the innermost open container grows, so the addresses of the others stay valid.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonValue take() { return std::move(root_); }
  const std::string& error() const { return error_; }
  const std::optional<std::string>& duplicate() const { return duplicate_; }  // a key that occurs twice in an object

  bool null() override { return put(JsonValue()); }
  bool boolean(bool value) override { return put(JsonValue(value)); }
  bool number_integer(std::int64_t value) override { return put(JsonValue(value)); }
  bool number_unsigned(std::uint64_t value) override { return put(JsonValue(value)); }
  bool number_float(double value, const std::string&) override { return put(JsonValue(value)); }
  bool string(std::string& value) override { return put(JsonValue(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(JsonValue(JsonValue::Object())); }
  bool start_array(std::size_t) override { return open(JsonValue(JsonValue::Array())); }
  bool key(std::string& name) override {
    open_.back()->as_object()->emplace_back(std::move(name), JsonValue());
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    JsonValue::Object& object = *open_.back()->as_object();
    open_.pop_back();
    using Member = JsonValue::Object::value_type;
    std::ranges::sort(object, {}, &Member::first);
    const auto twice = std::ranges::adjacent_find(object, {}, &Member::first);
    if (twice == object.end()) return true;
    duplicate_ = twice->first;
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    error_ = error.what();
    return false;
  }

 private:
  // The place of the next value.
  JsonValue& place() {
    if (open_.empty()) return root_;
    if (JsonValue::Array* const array = open_.back()->as_array()) return array->emplace_back();
    return open_.back()->as_object()->back().second;  // its key has come
  }
  bool put(JsonValue value) {
    place() = std::move(value);
    return true;
  }
  bool open(JsonValue container) {
    JsonValue& here = place();
    here = std::move(container);
    open_.push_back(&here);
    return true;
  }

  JsonValue root_;
  std::vector<JsonValue*> open_;  // the containers that have not ended, from the outermost
  std::string error_;
  std::optional<std::string> duplicate_;
};

}  // namespace

absl::StatusOr<JsonValue> JsonValue::parse(std::string_view text, std::string_view where) {
  if (nests_deeper_than(text, kMaxJsonDepth))
    return invalid_argument(where, ": its JSON nests deeper than ", kMaxJsonDepth, " levels");
  TreeBuilder builder;
  const bool parsed = nlohmann::json::sax_parse(text, &builder);
  if (builder.duplicate())
    return invalid_argument(where, ": the key '", *builder.duplicate(), "' stands twice in one object");
  if (!parsed) return invalid_argument(where, " is not valid JSON: ", builder.error());
  return builder.take();
}

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object* const object = as_object();
  if (object == nullptr) return nullptr;
  const auto found = std::ranges::lower_bound(*object, key, std::less<>(), &Object::value_type::first);
  return found == object->end() || found->first != key ? nullptr : &found->second;
}

std::string_view JsonValue::type_name() const {
  constexpr std::array<std::string_view, 8> kNames = {"null",   "boolean", "number", "number",
                                                      "number", "string",  "array",  "object"};
  return kNames[value_.index()];
}

void append_json_string(std::string& to, std::string_view text) {
  to += '"';
  for (const char c : text) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    if (const std::size_t which = kShort.find(c); which != std::string_view::npos) {
      to += {'\\', kLetters[which]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      to += escaped.data();
    } else {
      to += c;
    }
  }
  to += '"';
}

}  // namespace bascule::inline v0
