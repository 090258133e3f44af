// Element types: their sizes and the names that safetensors gives them. The one exception is F4_X2, two 4-bit numbers
// in a byte, of which safetensors counts each by itself (F4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bascule::inline v0 {

// clang-format off
enum class DType : std::uint8_t {
  kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool, kF8E4M3, kF8E5M2,
  kF8E4M3Fnuz, kF8E5M2Fnuz, kF8E8M0, kF4X2, kC64,
};
// clang-format on

struct DTypeTraits {
  std::string_view name;  // as in a safetensors header, except F4_X2
  std::uint8_t bytes;     // of one element
};

// clang-format off
inline constexpr std::array<DTypeTraits, 20> kDTypes = {{
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E8M0", 1}, {"F4_X2", 1}, {"C64", 8},
}};
// clang-format on

constexpr std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }
constexpr std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

// The type that safetensors calls `name`, or none.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace bascule::inline v0
