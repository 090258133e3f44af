// The header of a safetensors file: an 8-byte little-endian length, JSON, then the bytes of the tensors without gap or
// overlap.
//
//   0        8                     8 + length = data_offset                      end of file
//   | length | {"name":{...},...}␠␠␠ | tensor | tensor | ...                     |
//
// Files are not trusted: every length and offset is checked, with overflow in mind, before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // Hugging Face's own limit

struct SafetensorsHeader {
  struct Entry {
    TensorSpec spec;
    std::uint64_t offset = 0;  // of its first byte, from the beginning of the file
    std::uint64_t bytes = 0;
  };
  std::vector<Entry> entries;          // in the order of their bytes
  std::vector<std::uint32_t> by_name;  // their indices, sorted by name
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;

  const Entry* find(std::string_view name) const;  // null if there is none
};

// Reads the header of `file`, which is the whole file, and none of the other bytes. Returns INVALID_ARGUMENT for a
// length beyond the file, an unknown type, a shape that does not fit its bytes, a hole or an overlap; the text begins
// with `where`.
absl::StatusOr<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view where);

// Returns the beginning of a file that holds `specs` in their order: the length and the header, padded with spaces so
// that the data starts at a multiple of `alignment`. Takes time in proportion to the number of tensors. Returns
// INVALID_ARGUMENT for a name that is empty, duplicate or not UTF-8, or a header longer than readers accept.
absl::StatusOr<std::string> safetensors_prefix(std::span<const TensorSpec> specs,
                                               const std::map<std::string, std::string>& metadata,
                                               std::size_t alignment);

}  // namespace bascule::inline v0
