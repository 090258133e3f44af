// Safetensors files, mapped for reading and written whole (transport/safetensors.h has their header). Does not depend
// on LibTorch.
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

// A file mapped for reading. Bytes stay valid as long as this object. If another process shortens the file meanwhile,
// reading raises SIGBUS, as with any mapping.
//
// It may be a slot of a memmap folder (schemes/memmap/README.md), whose newest/model.safetensors is a link to it: the
// file is then locked like any reader's, so that no trainer writes it meanwhile.
class SafetensorsFile {
 public:
  // Blocks while a sender writes the file; returns UNAVAILABLE after ten seconds of that.
  static absl::StatusOr<SafetensorsFile> open(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  std::span<const std::byte> bytes(const SafetensorsHeader::Entry& entry) const;

  // Reads the whole file, and checks that a slot's file holds the version in its stamp. Returns OK for a file without a
  // stamp.
  absl::Status check_stamp() const;

 private:
  SafetensorsFile() = default;
  UniqueFd fd_;  // holds the lock
  Mapping mapping_;
  SafetensorsHeader header_;
};

// Writes `path` whole or not at all. `bytes_of(i)` returns the contiguous bytes of tensor i; it is called in order, and
// its bytes are used before the next call. An error names a tensor whose number of bytes does not fit its spec.
absl::Status write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> specs,
                               const std::map<std::string, std::string>& metadata,
                               absl::FunctionRef<std::span<const std::byte>(std::size_t)> bytes_of);

}  // namespace bascule::ref
