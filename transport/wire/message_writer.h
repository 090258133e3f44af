// Makes a JSON map, for CBOR, from a message's fields.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bascule/transport/wire/message_fields.h>

namespace bascule::inline v0 {

class MessageWriter {
 public:
  using Json = nlohmann::json;

  MessageWriter() = default;
  explicit MessageWriter(std::string_view left_out) : left_out_(left_out) {}  // a key that is not written

  template <typename T>
  void operator()(const char* key, const T& value) {
    if (key != left_out_) map_[key] = written(value);
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value && key != left_out_) map_[key] = written(*value);
  }
  void operator()(const char* key, const SharedSpecs& value) {
    if (value && key != left_out_) map_[key] = written(*value);
  }
  void bytes(const char* key, const std::string& value);
  void bytes(const char* key, const std::optional<std::string>& value);
  void text(const char* key, const std::string& value) { map_[key] = written(value); }
  void constant(const char* key, const char* text) { map_[key] = text; }
  void require(const char*, bool, const char*) {}

  Json take() { return std::exchange(map_, Json::object()); }

 private:
  template <typename T>
  requires std::integral<T> || std::floating_point<T>
  static Json written(T number) { return number; }
  static Json written(const std::string& text);  // shortened; invalid UTF-8 becomes question marks
  static Json written(DType dtype);
  static Json written(DigestMode mode);
  static Json written(const Digest& digest);
  friend EncodedLayout encode(const Layout&);
  friend EncodedTensors encode(const std::vector<TensorSpec>&);
  static Json written(const Layout& layout);

  template <typename T>
  static Json written(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(written(value));
    return array;
  }
  template <typename T>
  requires std::is_class_v<T>
  static Json written(const T& value) {
    MessageWriter nested;
    fields(nested, value);
    return nested.take();
  }

  Json map_ = Json::object();
  std::string_view left_out_;
};

}  // namespace bascule::inline v0
