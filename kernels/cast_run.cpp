#include <bascule/kernels/cast_run.h>

#include <array>
#include <cstring>
#include <type_traits>

#include <bascule/kernels/cast.h>

namespace bascule::inline v0::kernels {
namespace {

template <typename To, typename From>
void cast_run(const std::byte* source, std::byte* target, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    typename From::Bits from;
    std::memcpy(&from, source + i * sizeof(from), sizeof(from));
    const typename To::Bits to = cast_bits<To, From>(from);
    std::memcpy(target + i * sizeof(to), &to, sizeof(to));
  }
}

template <typename From>
RunCast run_cast_from(DType to) {
  switch (to) {
    case DType::kF64: return cast_run<F64Format, From>;
    case DType::kF32: return cast_run<F32Format, From>;
    case DType::kF16: return cast_run<F16Format, From>;
    case DType::kBF16: return cast_run<BF16Format, From>;
    default: return nullptr;
  }
}

}  // namespace

RunCast plain_run_cast(DType from, DType to) {
  if (from == to) return nullptr;
  switch (from) {
    case DType::kF64: return run_cast_from<F64Format>(to);
    case DType::kF32: return run_cast_from<F32Format>(to);
    case DType::kF16: return run_cast_from<F16Format>(to);
    case DType::kBF16: return run_cast_from<BF16Format>(to);
    default: return nullptr;
  }
}

}  // namespace bascule::inline v0::kernels
