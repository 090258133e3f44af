// Files of a checkpoint folder: read whole under a bound, written whole or not at all.
//
// Everything here blocks, works from any thread and keeps no state. Errors name the file and what the system
// said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/posix/unique_fd.h"

namespace bascule::ref {

// The text of a file. NOT_FOUND where there is none, INVALID_ARGUMENT where it is longer than `max_bytes`.
absl::StatusOr<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Makes the names in `folder` survive a crash (fsync of the folder).
absl::Status sync_folder(const std::filesystem::path& folder);

// A file under a temporary name beside `path`, which commit() makes durable and renames. Dropped without
// commit(), it is removed. Move-only; moved from, it holds nothing and may only be destroyed.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  absl::Status append(std::span<const std::byte> bytes);
  absl::Status append(std::string_view text);
  absl::Status commit();

 private:
  AtomicFile(UniqueFd fd, std::filesystem::path path, std::filesystem::path temporary);
  UniqueFd fd_;
  std::filesystem::path path_, temporary_;
};

}  // namespace bascule::ref
