#include <bascule/transport/json.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

bool nests_deeper_than(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

namespace {

// Finds a key that occurs twice in one object, in a separate pass: with the parser's callback instead, the parser would
// walk all members of an object whenever one of them ends.
class KeyWatch final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::optional<std::string>& duplicate() const { return duplicate_; }  // the first one

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    duplicate_ = name;
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::optional<std::string> duplicate_;
};

}  // namespace

absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where) {
  if (nests_deeper_than(text, kMaxJsonDepth)) {
    return invalid_argument(where, ": its JSON nests deeper than ", kMaxJsonDepth, " levels");
  }
  try {
    nlohmann::json value = nlohmann::json::parse(text);
    KeyWatch keys;
    nlohmann::json::sax_parse(text, &keys);
    if (keys.duplicate()) {
      return invalid_argument(where, ": the key '", *keys.duplicate(), "' stands twice in one object");
    }
    return value;
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument(where, " is not valid JSON: ", error.what());
  }
}

}  // namespace bascule::inline v0
