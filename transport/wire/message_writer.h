// Writes a message's fields as a CBOR map (RFC 8949). It appends to bytes and builds nothing else: if memory runs out,
// an exception leaves nothing behind. (A tree of nlohmann::json allocates even when it is destroyed.)
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/transport/wire/message_fields.h>

namespace bascule::inline v0 {

class MessageWriter {
 public:
  using Bytes = std::vector<std::uint8_t>;

  // Begins a map at the end of `to`, which must outlive this object. It may have up to 23 keys.
  explicit MessageWriter(Bytes& to, std::string_view left_out = "")  // a key that is not written
      : to_(to), map_(to.size()), left_out_(left_out) {
    to.push_back(kMap << 5);
  }

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (key != left_out_) write(to_, value, add(key));
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  void operator()(const char* key, const SharedSpecs& value) {
    if (value) (*this)(key, *value);
  }
  void bytes(const char* key, const std::string& value);
  void bytes(const char* key, const std::optional<std::string>& value);
  void text(const char* key, const std::string& value) { write(to_, value, add(key)); }
  void constant(const char* key, const char* text);
  void require(const char*, bool, const char*) {}

  // A value without a key.
  template <typename T>
  static void write(Bytes& to, const T& value) {
    write(to, value, Added());
  }

 private:
  enum Major : std::uint8_t { kUnsigned, kNegative, kBytes, kText, kArray, kMap };
  struct Added {};  // the key is written, and its value follows

  Added add(std::string_view key);
  static void head(Bytes& to, Major major, std::uint64_t argument);
  static void string(Bytes& to, Major major, std::string_view bytes);

  static void write(Bytes& to, bool value, Added) { to.push_back(value ? 0xf5 : 0xf4); }
  static void write(Bytes& to, double value, Added);
  template <std::integral T>
  static void write(Bytes& to, T number, Added) {
    const auto bits = static_cast<std::uint64_t>(number);  // ~n is -1 - n
    if constexpr (std::signed_integral<T>) {
      if (number < 0) return head(to, kNegative, ~bits);
    }
    head(to, kUnsigned, bits);
  }
  static void write(Bytes& to, const std::string& text, Added);  // shortened; invalid UTF-8 becomes question marks
  static void write(Bytes& to, DType dtype, Added);
  static void write(Bytes& to, DigestMode mode, Added);
  static void write(Bytes& to, const Digest& digest, Added);
  static void write(Bytes& to, const Layout& layout, Added);
  static void write(Bytes& to, const std::map<std::string, std::string>& texts, Added);  // as they are
  template <typename T>
  static void write(Bytes& to, const std::vector<T>& values, Added) {
    write(to, std::span(values), Added());
  }
  template <typename T>
  static void write(Bytes& to, std::span<const T> values, Added) {
    head(to, kArray, values.size());
    for (const T& value : values) write(to, value, Added());
  }
  template <typename T>
  requires std::is_class_v<T>
  static void write(Bytes& to, const T& value, Added) {
    MessageWriter nested(to);
    fields(nested, value);
  }

  Bytes& to_;
  const std::size_t map_;  // where its head is
  const std::string_view left_out_;
};

}  // namespace bascule::inline v0
