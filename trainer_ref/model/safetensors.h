// Safetensors files, mapped for reading and written whole (transport/safetensors.h has their header). Knows no
// LibTorch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/safetensors.h>

namespace bascule::ref {

// A file mapped for reading. Bytes stay valid as long as this object; a file that another process shortens meanwhile
// raises SIGBUS, as any mapping does.
//
// It may be a slot of a memmap folder (schemes/memmap/README.md), to which model.safetensors is a link there: the file
// is locked as such readers do, so that no trainer writes it meanwhile.
class SafetensorsFile {
 public:
  // Blocks while a sender writes the file, at most ten seconds: then UNAVAILABLE.
  static absl::StatusOr<SafetensorsFile> open(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  std::span<const std::byte> bytes(const SafetensorsHeader::Entry& entry) const;

  // Whether a slot's file holds the version that its stamp says; OK for one without a stamp. Reads all of it.
  absl::Status check_stamp() const;

 private:
  SafetensorsFile() = default;
  UniqueFd fd_;  // of the lock
  Mapping mapping_;
  SafetensorsHeader header_;
};

// Writes `path` whole or not at all. `bytes_of(i)` gives the contiguous bytes of tensor i, asked for in order
// and used before the next call; another number of bytes than its spec says is an error that names the
// tensor.
absl::Status write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> specs,
                               const std::map<std::string, std::string>& metadata,
                               absl::FunctionRef<std::span<const std::byte>(std::size_t)> bytes_of);

}  // namespace bascule::ref
