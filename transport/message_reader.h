// Fills a message from a JSON map that came over the wire: every key's presence, type and range is checked.
// The first thing that is wrong is kept, with its place, as `hello, key "expected[3].dtype": …`; what follows
// is skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "transport/message_fields.h"

namespace bascule {

class MessageReader {
 public:
  using Json = nlohmann::json;

  // `map` outlives the reader.
  MessageReader(std::string_view type, const Json& map) : type_(type), map_(&map) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    step_into(key, true, [&](const Json& json) { read(json, value); });
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    step_into(key, false, [&](const Json& json) { read(json, value.emplace()); });
  }
  void bytes(const char* key, std::string& value) {
    step_into(key, true, [&](const Json& json) { read_bytes(json, value); });
  }
  void bytes(const char* key, std::optional<std::string>& value) {
    step_into(key, false, [&](const Json& json) { read_bytes(json, value.emplace()); });
  }
  void constant(const char* key, std::string_view text);
  void require(const char* key, bool ok, std::string_view must);

  const absl::Status& status() const { return status_; }

 private:
  static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);
  struct Step {  // into a key's value, or into an item of an array
    const char* key = nullptr;
    std::size_t index = kNoIndex;
  };

  template <typename Visit>
  void step_into(const char* key, bool needed, Visit visit) {
    if (!status_.ok()) return;
    path_.push_back({.key = key});
    const auto found = map_->find(key);
    const bool missing = found == map_->end() || found->is_null();
    if (!missing) visit(*found);
    if (missing && needed) fail("is missing");
    path_.pop_back();
  }

  void read(const Json& json, bool& value);
  void read(const Json& json, std::uint32_t& value);
  void read(const Json& json, std::uint64_t& value);
  void read(const Json& json, std::int64_t& value);
  void read(const Json& json, double& value);  // seconds: finite, not negative
  void read(const Json& json, std::string& value);
  void read(const Json& json, DType& value);
  void read(const Json& json, DigestMode& value);
  void read(const Json& json, Digest& value);
  void read(const Json& json, Layout& value);
  void read_bytes(const Json& json, std::string& value);

  template <typename T>
  void read(const Json& json, std::vector<T>& values) {
    if (!json.is_array()) return fail_type("an array", json);
    values.resize(json.size());
    for (std::size_t i = 0; i < values.size() && status_.ok(); ++i) {
      path_.push_back({.index = i});
      read(json[i], values[i]);
      path_.pop_back();
    }
  }
  template <typename T>
  void read(const Json& json, T& value) {
    if (!json.is_object()) return fail_type("a map", json);
    const Json* const outer = std::exchange(map_, &json);
    fields(*this, value);
    map_ = outer;
  }

  void fail(std::string_view what);  // at the path
  void fail_type(std::string_view expected, const Json& found);

  std::string_view type_;
  const Json* map_;
  std::vector<Step> path_;
  absl::Status status_;
};

// The other side's text for an error: short, printable.
std::string in_quotes(std::string_view text);

}  // namespace bascule
