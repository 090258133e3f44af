#include <bascule/trainer_ref/text/decoder_stage.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/unicode.h>
#include <bascule/transport/utf8.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kNoCharacter = "\uFFFD";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

}  // namespace

// "<0x41>", as Rust reads a hexadecimal number: a sign may precede one digit.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.front() == '+') digits.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(value));
}

void WholeTokenStage::take(std::string_view fragment, bool ends_token) {
  if (!ends_token) {
    token_ += fragment;
  } else if (token_.empty()) {
    take_token(fragment);
  } else {
    token_ += fragment;
    take_token(std::exchange(token_, {}));
  }
}

void SpacedStage::take(std::string_view fragment, bool ends_token) {
  if (begins_ && !is_first_) pass(" ", false);
  is_first_ = false;
  begins_ = ends_token;
  pass(fragment, ends_token);
}

void ByteLevelStage::take_token(std::string_view token) {
  bytes_ += bytes_of_token(token);
  const std::size_t whole = utf8_prefix(bytes_);
  pass(repaired(std::string_view(bytes_).substr(0, whole)), false);
  bytes_.erase(0, whole);
}

void ByteLevelStage::finish() {
  pass(repaired(bytes_), true);
  next_->finish();
}

void ByteFallbackStage::take_token(std::string_view token) {
  if (const std::optional<char> byte = byte_of_token(token)) {
    bytes_ += *byte;
    return;
  }
  pass_bytes();
  pass(token, true);
}

void ByteFallbackStage::pass_bytes() {
  if (bytes_.empty()) return;
  const std::string bytes = std::exchange(bytes_, {});
  if (is_utf8(bytes)) return pass(bytes, true);
  for (std::size_t i = 0; i < bytes.size(); ++i) pass(kNoCharacter, true);
}

void ByteFallbackStage::finish() {
  pass_bytes();
  next_->finish();
}

void FuseStage::finish() {
  pass("", true);
  next_->finish();
}

void StripStage::take(std::string_view fragment, bool ends_token) {
  std::string out;
  while (!fragment.empty()) {
    const std::string_view character = fragment.substr(0, character_bytes(fragment.front()));
    fragment.remove_prefix(character.size());
    if (character == character_) {
      if (left_ > 0) {
        --left_;
      } else if (held_ < stop_) {
        ++held_;
      } else {
        out += character;  // as many as may be taken away at the end are still held
      }
      continue;
    }
    left_ = 0;
    for (; held_ > 0; --held_) out += character_;
    out += character;
  }
  pass(out, ends_token);
  if (ends_token) {
    left_ = start_;
    held_ = 0;
  }
}

void ReplaceStage::take_token(std::string_view token) {
  std::vector<Segment> segments;
  std::string out;
  if (!pattern_.find(token, {0, token.size()}, segments).ok()) {
    out = token;  // a regular expression that gave up: the token stays as it is
  }
  for (const auto& [span, is_match] : segments) {
    out += is_match ? std::string_view(content_) : token.substr(span.begin, span.end - span.begin);
  }
  pass(out, true);
}

void ReplaceCharacterStage::take(std::string_view fragment, bool ends_token) {
  pass(replaced(fragment, character_, content_), ends_token);
}

void MetaspaceStage::take(std::string_view fragment, bool ends_token) {
  pass(replaced(fragment, replacement_, leaves_out_ ? "" : " "), ends_token);
  if (ends_token) leaves_out_ = false;
}

}  // namespace bascule::ref
