// JSON files of a checkpoint, bounded in size, and their keys. Parsing itself is transport/json.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/json.h>

namespace bascule::ref {

inline constexpr std::uint64_t kMaxJsonFileBytes = 256u << 20;

// Parses a file of at most kMaxJsonFileBytes whose outermost value is an object.
absl::StatusOr<nlohmann::json> read_json_object(const std::filesystem::path& path);

// One JSON object whose values are read by key and type. The first value that is missing or wrong becomes the status;
// later answers are defaults. So a caller reads everything and checks the status once. A key whose value is null counts
// as missing. `object` and `status` must outlive this.
class JsonKeys {
 public:
  JsonKeys(const nlohmann::json& object, std::string where, absl::Status& status)
      : object_(object), where_(std::move(where)), status_(status) {}

  const nlohmann::json* find(const char* key) const;                                         // null if missing
  bool has(const char* key) const { return object_.contains(key); }                          // or null
  std::int64_t size(const char* key, std::optional<std::int64_t> otherwise = std::nullopt);  // 1 to 2^31
  double positive(const char* key, std::optional<double> otherwise = std::nullopt);
  bool flag(const char* key);  // false if missing
  std::string text(const char* key, std::string_view otherwise);

  void wrong(const char* key, std::string_view expected);  // "KEY: expected ..., found ..."
  void fail(std::string_view what);                        // sets INVALID_ARGUMENT
  void refuse(std::string_view what);                      // sets UNIMPLEMENTED: well-formed, but not supported

  // The object under `key`, which find() has shown to exist, with the same status.
  JsonKeys within(const char* key);

 private:
  const nlohmann::json& object_;
  std::string where_;
  absl::Status& status_;
};

}  // namespace bascule::ref
