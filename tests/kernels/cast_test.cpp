// Casts against an oracle that decodes by arithmetic instead of bits and searches for the nearest value.
#include <bascule/kernels/cast.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "processors.h"
#include <bascule/kernels/pack.h>

namespace bascule::inline v0::kernels {
namespace {

struct Format {
  DType dtype;
  int mantissa_bits;
  int exponent_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  std::uint64_t sign() const { return std::uint64_t{1} << (mantissa_bits + exponent_bits); }
  std::uint64_t nan() const { return sign() - 1; }
};
constexpr Format kF64 = {DType::kF64, 52, 11};
constexpr Format kF32 = {DType::kF32, 23, 8};
constexpr Format kF16 = {DType::kF16, 10, 5};
constexpr Format kBF16 = {DType::kBF16, 7, 8};
constexpr Format kFormats[] = {kF64, kF32, kF16, kBF16};

double decode(const Format& format, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & format.nan();
  if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
  const double sign = (bits & format.sign()) != 0 ? -1 : 1;
  if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  const auto field = static_cast<int>(magnitude >> format.mantissa_bits);
  const std::uint64_t mantissa = magnitude & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const std::uint64_t whole = field == 0 ? mantissa : mantissa | (std::uint64_t{1} << format.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(whole), std::max(field, 1) - format.bias() - format.mantissa_bits);
}

// The nearest pattern, ties to the even one. Patterns have the order of their values, so a binary search finds the two
// neighbours; infinity takes the place of the value after the last finite one.
std::uint64_t encode(const Format& format, double value) {
  if (std::isnan(value)) return format.nan();
  const std::uint64_t sign = std::signbit(value) ? format.sign() : 0;
  if (format.dtype == DType::kF64) return std::bit_cast<std::uint64_t>(value);
  const double magnitude = std::fabs(value);
  const double beyond = std::ldexp(1.0, format.bias() + 1);
  if (magnitude >= beyond) return sign | format.infinity();
  const auto value_of = [&](std::uint64_t bits) { return bits == format.infinity() ? beyond : decode(format, bits); };
  std::uint64_t below = 0;
  std::uint64_t above = format.infinity();
  while (above - below > 1) {
    const std::uint64_t middle = below + (above - below) / 2;
    (value_of(middle) <= magnitude ? below : above) = middle;
  }
  const double to_below = magnitude - value_of(below);  // exact: neighbours are near
  const double to_above = value_of(above) - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && below % 2 == 1);
  return sign | (up ? above : below);
}

// Patterns of `from` at which casts to `to` change: the values of `to`, the middles between them, and their neighbours.
void add_edges(const Format& from, const Format& to, std::vector<std::uint64_t>& patterns) {
  const auto add_around = [&](double value) {
    const std::uint64_t bits = encode(from, value);
    for (const std::uint64_t near : {bits - 1, bits, bits + 1})
      for (const std::uint64_t sign : {std::uint64_t{0}, from.sign()}) patterns.push_back((near & from.nan()) | sign);
  };
  std::vector<std::uint64_t> values;
  if (to.sign() <= 0x8000) {
    for (std::uint64_t bits = 0; bits < to.infinity(); bits += kIsInstrumented ? 7 : 1) values.push_back(bits);
  } else {
    for (std::uint64_t field = 0; field < to.infinity(); field += std::uint64_t{1} << to.mantissa_bits)
      for (const std::uint64_t mantissa : {0, 1, 2, 3, 12345}) values.push_back(field + mantissa);
    values.push_back(to.infinity() - 1);
  }
  for (const std::uint64_t bits : values) {
    const double value = decode(to, bits);
    const double next =
        bits + 1 == to.infinity() ? std::ldexp(1.0, std::min(to.bias() + 1, 1023)) : decode(to, bits + 1);
    add_around(value);
    add_around(value + (next - value) / 2);
  }
}

std::vector<std::uint64_t> patterns_of(const Format& from, const Format& to) {
  std::vector<std::uint64_t> patterns;
  if (from.sign() == 0x8000) {
    for (std::uint64_t bits = 0; bits < 0x10000; ++bits) patterns.push_back(bits);
    return patterns;
  }
  add_edges(from, to, patterns);
  for (const std::uint64_t sign : {std::uint64_t{0}, from.sign()})
    for (const std::uint64_t bits : {std::uint64_t{0}, std::uint64_t{1}, from.infinity() - 1, from.infinity(),
                                     from.infinity() + 1, from.nan() - 1, from.nan(), from.nan() & (from.nan() << 3)})
      patterns.push_back(bits | sign);
  std::mt19937_64 random(7);
  for (int i = 0; i < (kIsInstrumented ? 10'000 : 200'000); ++i)
    patterns.push_back(random() & (from.sign() | from.nan()));
  return patterns;
}

class CastRun : public testing::TestWithParam<NamedProcessor> {};

TEST_P(CastRun, RoundsEveryPatternToTheNearest) {
  for (const Format& from : kFormats) {
    for (const Format& to : kFormats) {
      if (from.dtype == to.dtype) continue;
      SCOPED_TRACE(std::string(name_of(from.dtype)) + " to " + std::string(name_of(to.dtype)));
      const RunCast cast = GetParam().processor->run_cast(from.dtype, to.dtype);
      ASSERT_NE(cast, nullptr);
      const std::vector<std::uint64_t> patterns = patterns_of(from, to);
      std::vector<std::byte> source(patterns.size() * size_of(from.dtype) + 1);
      std::vector<std::byte> target(patterns.size() * size_of(to.dtype) + 1);
      for (std::size_t i = 0; i < patterns.size(); ++i)  // one byte off: no run is aligned
        std::memcpy(source.data() + 1 + i * size_of(from.dtype), &patterns[i], size_of(from.dtype));
      cast(source.data() + 1, target.data() + 1, patterns.size());
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        std::uint64_t found = 0;
        std::memcpy(&found, target.data() + 1 + i * size_of(to.dtype), size_of(to.dtype));
        ASSERT_EQ(found, encode(to, decode(from, patterns[i]))) << std::hex << "of " << patterns[i];
      }
    }
  }
}

TEST_P(CastRun, CastsEveryLengthAndNoElementMore) {
  const RunCast cast = GetParam().processor->run_cast(DType::kF32, DType::kBF16);
  const std::vector<float> source(70, 1.0F);
  for (std::size_t elements = 0; elements <= source.size(); ++elements) {
    std::vector<std::uint16_t> target(source.size() + 1, 0xaaaa);
    cast(reinterpret_cast<const std::byte*>(source.data()), reinterpret_cast<std::byte*>(target.data()), elements);
    for (std::size_t i = 0; i < target.size(); ++i) ASSERT_EQ(target[i], i < elements ? 0x3f80 : 0xaaaa) << elements;
  }
}

INSTANTIATE_TEST_SUITE_P(On, CastRun, testing::ValuesIn(processors()), name_of_case);

TEST(CanCast, KnowsFloatingPointPairsAndCopies) {
  for (std::size_t from = 0; from < kDTypes.size(); ++from) {
    for (std::size_t to = 0; to < kDTypes.size(); ++to) {
      const auto is_float = [](std::size_t i) { return static_cast<DType>(i) <= DType::kBF16; };
      EXPECT_EQ(can_cast(static_cast<DType>(from), static_cast<DType>(to)),
                from == to || (is_float(from) && is_float(to)))
          << kDTypes[from].name << " to " << kDTypes[to].name;
    }
  }
}

TEST(CastBits, IsAConstantExpression) {
  static_assert(cast_bits<BF16Format, F32Format>(0x3f808000) == 0x3f80);  // a tie, to even
  static_assert(cast_bits<BF16Format, F32Format>(0x3f818000) == 0x3f82);
  static_assert(cast_bits<F16Format, F32Format>(0x477ff000) == 0x7c00);  // 65520 rounds to infinity
  static_assert(cast_bits<F16Format, F32Format>(0x33000000) == 0x0000);  // half of the smallest denormal
  static_assert(cast_bits<F16Format, F32Format>(0x33000001) == 0x0001);
  static_assert(cast_bits<BF16Format, F32Format>(0xff800001) == 0x7fff);  // NaN loses its sign
}

}  // namespace
}  // namespace bascule::inline v0::kernels
