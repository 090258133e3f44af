#include <bascule/transport/wire/cbor_value.h>

#include <array>
#include <bit>
#include <cmath>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Kind = CborValue::Kind;
enum Info : std::uint8_t { kFalse = 20, kTrue = 21, kHalf = 25, kSingle = 26 };

double half(std::uint64_t bits) {  // RFC 8949, appendix D
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  const auto mantissa = static_cast<double>(bits & 0x3ff);
  const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent != 31 ? std::ldexp(mantissa + 1024, exponent - 25)
                      : mantissa == 0  ? HUGE_VAL
                                       : std::nan("");
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace

CborValue::CborValue(const std::uint8_t* at) : begin_(at), content_(at + 1) {
  constexpr std::array<Kind, 6> kKinds = {Kind::kUnsigned, Kind::kNegative, Kind::kBytes,
                                          Kind::kText,     Kind::kArray,    Kind::kMap};
  const std::uint8_t info = *at & 31;
  const std::size_t width = info < 24 ? 0 : std::size_t{1} << (info - 24);
  argument_ = width == 0 ? info : 0;
  for (std::size_t i = 0; i < width; ++i) argument_ = argument_ << 8 | *content_++;
  if (const std::size_t major = *at >> 5; major < kKinds.size()) {
    kind_ = kKinds[major];
  } else if (info >= kHalf) {
    kind_ = Kind::kFloat;
  } else if (info == kFalse || info == kTrue) {
    kind_ = Kind::kBoolean;
    argument_ = info == kTrue ? 1 : 0;
  }
}

double CborValue::real() const {
  if (kind_ == Kind::kUnsigned) return static_cast<double>(argument_);
  if (kind_ == Kind::kNegative) return -1 - static_cast<double>(argument_);
  const std::uint8_t info = *begin_ & 31;
  if (info == kHalf) return half(argument_);
  if (info == kSingle) return std::bit_cast<float>(static_cast<std::uint32_t>(argument_));
  return std::bit_cast<double>(argument_);
}

std::string_view CborValue::text() const { return {reinterpret_cast<const char*>(content_), argument_}; }

// Counts the remaining items instead of recursing, so that nested arrays take no stack.
const std::uint8_t* CborValue::end() const {
  std::uint64_t left = 1;
  CborValue item = *this;
  while (true) {
    --left;
    const std::uint8_t* at = item.content_;
    if (item.kind_ == Kind::kBytes || item.kind_ == Kind::kText) at += item.argument_;
    if (item.kind_ == Kind::kArray) left += item.argument_;
    if (item.kind_ == Kind::kMap) left += 2 * item.argument_;
    if (left == 0) return at;
    item = CborValue(at);
  }
}

std::string CborValue::shown() const {
  switch (kind_) {
    case Kind::kUnsigned: return cat(argument_);
    case Kind::kNegative: return cat(negative());
    case Kind::kFloat: return cat(real());
    case Kind::kBytes: return "bytes";
    case Kind::kText: return "text";
    case Kind::kArray: return "array";
    case Kind::kMap: return "map";
    case Kind::kBoolean: return truth() ? "true" : "false";
    case Kind::kNull: break;
  }
  return "null";
}

}  // namespace bascule::inline v0
