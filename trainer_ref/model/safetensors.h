// Safetensors files: an 8-byte little-endian header length, a JSON header, the bytes of the tensors without
// gap or overlap. Knows no LibTorch.
//
//   0        8                     8 + length = data_offset                      end of file
//   | length | {"name":{...},...}␠␠␠ | tensor | tensor | ...                     |
//
// Nothing in a file is trusted: every length and offset is checked, without overflow, before it is used.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/tensor.h"

namespace bascule::ref {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // Hugging Face's own limit

struct SafetensorsHeader {
  struct Entry {
    TensorSpec spec;
    std::uint64_t offset = 0;  // of its first byte, from the beginning of the file
    std::uint64_t bytes = 0;
  };
  std::vector<Entry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;

  const Entry* find(std::string_view name) const;  // null where there is none
};

// Reads the header of a whole file's bytes. INVALID_ARGUMENT says what is wrong and begins with `where`: a
// length beyond the file, a type that is not known, a shape that does not fit its bytes, a hole, an overlap.
absl::StatusOr<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view where);

// The beginning of a file that holds `specs` in their order: length and header, padded with spaces so that
// the data starts at a multiple of `alignment`.
absl::StatusOr<std::string> safetensors_prefix(std::span<const TensorSpec> specs,
                                               const std::map<std::string, std::string>& metadata,
                                               std::size_t alignment);

// A file mapped for reading. Bytes stay valid as long as this object; a file that somebody shortens meanwhile
// raises SIGBUS, as any mapping does.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> open(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  std::span<const std::byte> bytes(const SafetensorsHeader::Entry& entry) const;

 private:
  SafetensorsFile() = default;
  boost::interprocess::mapped_region region_;
  SafetensorsHeader header_;
};

// Writes `path` whole or not at all. `bytes_of(i)` gives the contiguous bytes of tensor i, asked for in order
// and used before the next call; another number of bytes than its spec says is an error that names the
// tensor.
absl::Status write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> specs,
                               const std::map<std::string, std::string>& metadata,
                               absl::FunctionRef<std::span<const std::byte>(std::size_t)> bytes_of);

}  // namespace bascule::ref
