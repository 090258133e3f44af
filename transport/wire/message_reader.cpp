#include <bascule/transport/wire/message_reader.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

using Kind = CborValue::Kind;

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 64;
  const std::string shown = absl::CHexEscape(status_internal::piece(text.substr(0, kShown)));
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
  status_ = invalid_argument(type_, type_.empty() ? "" : ", ", "key \"", path, "\": ", what);
}

void MessageReader::fail_type(std::string_view expected, const CborValue& found) {
  fail(cat("expected ", expected, ", found ", found.shown()));
}

std::size_t MessageReader::open(const CborValue& map) {
  const std::size_t outer = std::exchange(map_, pairs_.size());
  const std::uint8_t* at = map.first_at();
  for (std::size_t i = 0; i < map.size(); ++i) {
    const CborValue key(at), value(key.end());
    pairs_.push_back({.key = key.text(), .value = value});
    at = value.end();
  }
  return outer;
}

const CborValue* MessageReader::find(std::string_view key) const {
  for (std::size_t i = map_; i < pairs_.size(); ++i)
    if (pairs_[i].key == key) return &pairs_[i].value;
  return nullptr;
}

std::optional<std::string_view> MessageReader::type() {
  const CborValue* const found = find("type");
  if (found == nullptr || found->kind() != Kind::kText) return std::nullopt;
  return type_ = found->text();
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

bool MessageReader::may_list(std::size_t items) {
  listed_ += items;
  if (listed_ > kMostListed) fail(cat("expected lists of ", kMostListed, " items at most in all, found more"));
  return listed_ <= kMostListed;
}

void MessageReader::read(const CborValue& found, bool& value) {
  if (found.kind() != Kind::kBoolean) return fail_type("true or false", found);
  value = found.truth();
}

void MessageReader::read(const CborValue& found, std::uint64_t& value) {
  if (found.kind() != Kind::kUnsigned) return fail_type("an integer from 0 to 2^64 - 1", found);
  value = found.number();
}

void MessageReader::read(const CborValue& found, std::uint32_t& value) {
  if (found.kind() != Kind::kUnsigned || found.number() > std::numeric_limits<std::uint32_t>::max())
    return fail_type("an integer from 0 to 2^32 - 1", found);
  value = static_cast<std::uint32_t>(found.number());
}

void MessageReader::read(const CborValue& found, std::int64_t& value) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  const bool negative = found.kind() == Kind::kNegative;
  if (!negative && (found.kind() != Kind::kUnsigned || found.number() > kMax))
    return fail_type("an integer from -2^63 to 2^63 - 1", found);
  value = negative ? found.negative() : static_cast<std::int64_t>(found.number());
}

void MessageReader::read(const CborValue& found, double& value) {
  if (!found.is_number() || !std::isfinite(found.real()) || found.real() < 0)
    return fail_type("a finite number, not negative", found);
  value = found.real();
}

void MessageReader::read(const CborValue& found, std::string& value) {
  if (found.kind() != Kind::kText) return fail_type("text", found);
  if (found.text().size() > kMostTextBytes)
    return fail(cat("expected a text of ", kMostTextBytes, " bytes at most, found one of ", found.text().size()));
  value = found.text();
  if (!is_utf8(value)) fail(cat("expected UTF-8, found ", in_quotes(value)));
}

void MessageReader::read(const CborValue& found, SharedSpecs& value) {
  const std::span<const std::uint8_t> encoded = found.bytes();
  if (known_ != nullptr) value = known_->find(encoded);
  if (value) return;
  std::vector<TensorSpec> specs;
  read(found, specs);
  if (!status_.ok()) return;
  value = std::make_shared<const std::vector<TensorSpec>>(std::move(specs));
  if (known_ != nullptr) known_->add(encoded, value);
}

void MessageReader::read(const CborValue& found, std::map<std::string, std::string>& texts) {
  if (found.kind() != Kind::kMap) return fail_type("a map", found);
  if (!may_list(found.size())) return;
  const std::uint8_t* at = found.first_at();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const CborValue key(at), text(key.end());
    if (text.kind() != Kind::kText) return fail_type("texts", text);
    texts.emplace(key.text(), text.text());
    at = text.end();
  }
}

void MessageReader::read_bytes(const CborValue& found, std::string& value) {
  if (found.kind() != Kind::kBytes) return fail_type("a byte string", found);
  value = found.text();
}

void MessageReader::read(const CborValue& found, DType& value) {
  std::string name;
  read(found, name);
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype) return fail(cat("unknown dtype ", in_quotes(name)));
  value = *dtype;
}

void MessageReader::read(const CborValue& found, DigestMode& value) {
  std::string name;
  read(found, name);
  const auto* const mode = std::find(kDigestModes.begin(), kDigestModes.end(), name);
  if (mode == kDigestModes.end()) return fail(cat("expected off, on or always, found ", in_quotes(name)));
  value = static_cast<DigestMode>(mode - kDigestModes.begin());
}

void MessageReader::read(const CborValue& found, Digest& value) {
  std::string bytes;
  read_bytes(found, bytes);
  if (bytes.size() != 16) return fail(cat("expected 16 bytes, found ", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint64_t& word = i < 8 ? value.high : value.low;
    word = word << 8 | static_cast<std::uint8_t>(bytes[i]);
  }
}

void MessageReader::read(const CborValue& found, Layout& value) {
  LayoutParts parts;
  read(found, parts);
  if (!status_.ok()) return;
  absl::StatusOr<Layout> layout =
      Layout::from_placements(std::move(parts.tensors), std::move(parts.aliases), parts.bytes,
                              std::move(parts.description), std::move(parts.division));
  if (!layout.ok()) return fail(message_of(layout.status()));
  value = *std::move(layout);
}

}  // namespace bascule::inline v0
