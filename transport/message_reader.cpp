#include "transport/message_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "transport/text.h"
#include "transport/utf8.h"

namespace bascule {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 64;
  const std::string shown = absl::CHexEscape(text_internal::piece(text.substr(0, kShown)));
  return cat("\"", shown, text.size() > kShown ? "…\"" : "\"");
}

void MessageReader::fail(std::string_view what) {
  if (!status_.ok()) return;
  std::string path;
  for (const Step& step : path_) {
    if (step.key == nullptr) {
      path += cat("[", step.index, "]");
    } else {
      path += cat(path.empty() ? "" : ".", step.key);
    }
  }
  status_ = invalid_argument(type_, ", key \"", path, "\": ", what);
}

void MessageReader::fail_type(std::string_view expected, const Json& found) {
  if (found.is_number()) return fail(cat("expected ", expected, ", found ", found.dump()));
  fail(cat("expected ", expected, ", found ", found.is_string() ? "text" : found.type_name()));
}

void MessageReader::constant(const char* key, std::string_view text) {
  std::string found;
  (*this)(key, found);
  if (found != text) require(key, false, cat("must be ", in_quotes(text), ", found ", in_quotes(found)));
}

void MessageReader::require(const char* key, bool ok, std::string_view must) {
  if (ok) return;
  path_.push_back({.key = key});
  fail(must);
  path_.pop_back();
}

void MessageReader::read(const Json& json, bool& value) {
  if (!json.is_boolean()) return fail_type("true or false", json);
  value = json.get<bool>();
}

void MessageReader::read(const Json& json, std::uint64_t& value) {
  if (!json.is_number_unsigned()) return fail_type("an integer from 0 to 2^64 - 1", json);
  value = json.get<std::uint64_t>();
}

void MessageReader::read(const Json& json, std::uint32_t& value) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
    return fail_type("an integer from 0 to 2^32 - 1", json);
  value = json.get<std::uint32_t>();
}

void MessageReader::read(const Json& json, std::int64_t& value) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > kMax))
    return fail_type("an integer from -2^63 to 2^63 - 1", json);
  value = json.get<std::int64_t>();
}

void MessageReader::read(const Json& json, double& value) {
  if (!json.is_number() || !std::isfinite(json.get<double>()) || json.get<double>() < 0)
    return fail_type("a finite number, not negative", json);
  value = json.get<double>();
}

void MessageReader::read(const Json& json, std::string& value) {
  if (!json.is_string()) return fail_type("text", json);
  value = json.get_ref<const std::string&>();
  if (!is_utf8(value)) fail(cat("expected UTF-8, found ", in_quotes(value)));
}

void MessageReader::read_bytes(const Json& json, std::string& value) {
  if (!json.is_binary()) return fail_type("a byte string", json);
  value.assign(json.get_binary().begin(), json.get_binary().end());
}

void MessageReader::read(const Json& json, DType& value) {
  std::string name;
  read(json, name);
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype) return fail(cat("unknown dtype ", in_quotes(name)));
  value = *dtype;
}

void MessageReader::read(const Json& json, DigestMode& value) {
  std::string name;
  read(json, name);
  const auto* const found = std::find(kDigestModes.begin(), kDigestModes.end(), name);
  if (found == kDigestModes.end()) return fail(cat("expected off, on or always, found ", in_quotes(name)));
  value = static_cast<DigestMode>(found - kDigestModes.begin());
}

void MessageReader::read(const Json& json, Digest& value) {
  std::string bytes;
  read_bytes(json, bytes);
  if (bytes.size() != 16) return fail(cat("expected 16 bytes, found ", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint64_t& word = i < 8 ? value.high : value.low;
    word = word << 8 | static_cast<std::uint8_t>(bytes[i]);
  }
}

void MessageReader::read(const Json& json, Layout& value) {
  LayoutParts parts;
  read(json, parts);
  if (!status_.ok()) return;
  absl::StatusOr<Layout> layout =
      Layout::from_placements(std::move(parts.tensors), std::move(parts.aliases), parts.bytes);
  if (!layout.ok()) return fail(message_of(layout.status()));
  value = *std::move(layout);
}

}  // namespace bascule
