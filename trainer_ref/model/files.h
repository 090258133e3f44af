// AtomicFile: a file of a checkpoint folder, written whole or not at all. Blocks, works from any thread and keeps no
// state. Errors name the file and what the system said.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/posix/files.h"
#include "transport/posix/unique_fd.h"

namespace bascule::ref {

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
