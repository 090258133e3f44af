// Fills a message from a received CBOR map, and checks that every key is present and has the right type and range.
// After the first error it skips the rest; status() then names the place, as in `hello, key "expected[3].dtype": …`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/known_tensors.h>
#include <bascule/transport/utf8.h>
#include <bascule/transport/wire/cbor_value.h>
#include <bascule/transport/wire/message_fields.h>

namespace bascule::inline v0 {

class MessageReader {
 public:
  // check_cbor() must have accepted the bytes of `map`. `known` may be null.
  MessageReader(const CborValue& map, KnownTensors* known) : known_(known) { open(map); }

  // The message's type, from the map. Call it before you read anything else.
  std::optional<std::string_view> type();

  template <typename T>
  void operator()(const char* key, T& value) {
    step_into(key, true, [&](const CborValue& found) { read(found, value); });
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    step_into(key, false, [&](const CborValue& found) { read(found, value.emplace()); });
  }
  void operator()(const char* key, SharedSpecs& value) {
    step_into(key, false, [&](const CborValue& found) { read(found, value); });
  }
  void bytes(const char* key, std::string& value) {
    step_into(key, true, [&](const CborValue& found) { read_bytes(found, value); });
  }
  void bytes(const char* key, std::optional<std::string>& value) {
    step_into(key, false, [&](const CborValue& found) { read_bytes(found, value.emplace()); });
  }
  void text(const char* key, std::string& value) {
    (*this)(key, value);
    value = printable(value);
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
    const CborValue* const found = find(key);
    const bool missing = found == nullptr || found->kind() == CborValue::Kind::kNull;
    if (!missing) visit(CborValue(*found));  // a copy, since reading a map inside it moves pairs_
    if (missing && needed) fail("is missing");
    path_.pop_back();
  }

  void read(const CborValue& found, bool& value);
  void read(const CborValue& found, std::uint32_t& value);
  void read(const CborValue& found, std::uint64_t& value);
  void read(const CborValue& found, std::int64_t& value);
  void read(const CborValue& found, double& value);  // seconds: finite, not negative
  void read(const CborValue& found, std::string& value);
  void read(const CborValue& found, DType& value);
  void read(const CborValue& found, DigestMode& value);
  void read(const CborValue& found, Digest& value);
  void read(const CborValue& found, Layout& value);
  void read(const CborValue& found, SharedSpecs& value);
  void read(const CborValue& found, std::map<std::string, std::string>& texts);  // of any bytes
  void read_bytes(const CborValue& found, std::string& value);

  // Items that may be a byte long on the wire, and need many times as much memory. Lists of tensors are as long as the
  // model, and need about as much memory as they have bytes.
  template <typename T>
  static constexpr bool kNeedsMoreMemory =
      std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, HeldSlot>;
  static constexpr std::size_t kMostListed = std::size_t{1} << 20;  // of those, in one message
  bool may_list(std::size_t items);

  template <typename T>
  void read(const CborValue& found, std::vector<T>& values) {
    if (found.kind() != CborValue::Kind::kArray) return fail_type("an array", found);
    if (kNeedsMoreMemory<T> && !may_list(found.size())) return;
    values.resize(found.size());
    const std::uint8_t* at = found.first_at();
    for (std::size_t i = 0; i < values.size() && status_.ok(); ++i) {
      const CborValue item(at);
      path_.push_back({.index = i});
      read(item, values[i]);
      path_.pop_back();
      at = item.end();
    }
  }
  template <typename T>
  void read(const CborValue& found, T& value) {
    if (found.kind() != CborValue::Kind::kMap) return fail_type("a map", found);
    const std::size_t outer = open(found);
    fields(*this, value);
    pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(std::exchange(map_, outer)), pairs_.end());
  }

  void fail(std::string_view what);  // at the current path
  void fail_type(std::string_view expected, const CborValue& found);

  struct Pair {
    std::string_view key;
    CborValue value;
  };
  std::size_t open(const CborValue& map);  // makes `map` the current map; returns the previous map_
  const CborValue* find(std::string_view key) const;

  KnownTensors* const known_;
  std::string_view type_;    // for texts
  std::vector<Pair> pairs_;  // of the current map, after the pairs of the enclosing maps
  std::size_t map_ = 0;      // where the current map's pairs begin
  std::vector<Step> path_;
  std::size_t listed_ = 0;
  absl::Status status_;
};

// Makes a peer's text fit for an error: shortened, printable and in quotes.
std::string in_quotes(std::string_view text);

}  // namespace bascule::inline v0
