// Casts one element between floating-point types with integer arithmetic on bit patterns, so that the calling thread's
// rounding mode and flush-to-zero flag have no effect. Tests compare every faster path with this one.
//
// Rounds once, to nearest, ties to even; overflow becomes infinity; denormals are kept. A NaN becomes the target type's
// NaN with every bit but the sign set (0x7FFF, 0x7FFFFFFF, ...): a cast drops sign and payload.
#pragma once

#include <bit>
#include <cstdint>

namespace bascule::inline v0::kernels {

template <typename BitsType, int kExponentBitsValue>
struct FloatFormat {
  using Bits = BitsType;
  static constexpr int kMantissaBits = static_cast<int>(8 * sizeof(Bits)) - 1 - kExponentBitsValue;
  static constexpr int kExponentBits = kExponentBitsValue;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kMaxExponent = (1 << kExponentBits) - 1;  // of infinity and NaN
  static constexpr Bits kNan = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  static constexpr Bits kSign = static_cast<Bits>(~kNan);
  static constexpr Bits kInfinity = static_cast<Bits>(Bits{kMaxExponent} << kMantissaBits);
};

using F64Format = FloatFormat<std::uint64_t, 11>;
using F32Format = FloatFormat<std::uint32_t, 8>;
using F16Format = FloatFormat<std::uint16_t, 5>;
using BF16Format = FloatFormat<std::uint16_t, 8>;

namespace detail {

// `value` must not be 0. On a device std::countl_zero compiles (nvcc 13.0, libstdc++ 12), but gives wrong F64 results.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr int
    leading_zeros(std::uint64_t value) {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(value));
#else
  return std::countl_zero(value);
#endif
}

// The value is `significand`, with its leading one at bit 63, times 2^(exponent - 63).
template <typename To>
constexpr std::uint64_t round_magnitude(std::uint64_t significand, int exponent) {
  const int biased = exponent + To::kBias;
  if (biased >= To::kMaxExponent) return To::kInfinity;
  const int dropped = 63 - To::kMantissaBits + (biased > 0 ? 0 : 1 - biased);
  if (dropped > 64) return 0;
  const std::uint64_t kept = dropped == 64 ? 0 : significand >> dropped;
  const std::uint64_t rest = significand << (64 - dropped);  // as a fraction of 2^64; half is 2^63
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  const std::uint64_t up = rest > kHalf || (rest == kHalf && (kept & 1) != 0) ? 1 : 0;
  // In a normal number, the leading one of `kept` adds one to the exponent field: hence biased - 1. A carry from
  // rounding up also goes into that field, and can make the result infinity.
  const std::uint64_t below = biased > 0 ? static_cast<std::uint64_t>(biased - 1) << To::kMantissaBits : 0;
  return below + kept + up;
}

}  // namespace detail

template <typename To, typename From>
constexpr typename To::Bits cast_bits(typename From::Bits from) {
  using Bits = typename To::Bits;
  const auto magnitude = static_cast<typename From::Bits>(from & From::kNan);
  const Bits sign = (from & From::kSign) != 0 ? To::kSign : Bits{0};
  if (magnitude > From::kInfinity) return To::kNan;

  if constexpr (To::kExponentBits == From::kExponentBits) {
    // With equal exponent fields a longer mantissa is filled with zeros, and a shorter one rounded with carry.
    constexpr int kMore = To::kMantissaBits - From::kMantissaBits;
    if constexpr (kMore >= 0) {
      return static_cast<Bits>(sign | (Bits{magnitude} << kMore));
    } else {
      constexpr typename From::Bits kBelowHalf = (typename From::Bits{1} << (-kMore - 1)) - 1;
      return static_cast<Bits>(sign | ((magnitude + kBelowHalf + ((magnitude >> -kMore) & 1)) >> -kMore));
    }
  } else {
    if (magnitude == From::kInfinity) return static_cast<Bits>(sign | To::kInfinity);
    if (magnitude == 0) return sign;
    const std::uint64_t mantissa = magnitude & ((std::uint64_t{1} << From::kMantissaBits) - 1);
    const auto field = static_cast<int>(magnitude >> From::kMantissaBits);
    const std::uint64_t whole = field == 0 ? mantissa : mantissa | (std::uint64_t{1} << From::kMantissaBits);
    const int zeros = detail::leading_zeros(whole);
    const int exponent = (field == 0 ? 1 : field) - From::kBias + 63 - From::kMantissaBits - zeros;
    return static_cast<Bits>(sign | detail::round_magnitude<To>(whole << zeros, exponent));
  }
}

}  // namespace bascule::inline v0::kernels
