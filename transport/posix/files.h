// Whole files: read under a bound, allocated in full; and folders on the disk.
//
// Everything here blocks, works from any thread and keeps no state. Errors name the file and the system's error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

// The text of a file. NOT_FOUND: there is none. INVALID_ARGUMENT: it is longer than `max_bytes`.
absl::StatusOr<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// The rest of an open file, from its current offset; `path` is for texts.
absl::StatusOr<std::string> read_file(int fd, const std::filesystem::path& path, std::uint64_t max_bytes);

// Writes all of `bytes` at the descriptor's offset; `name` is the file's, for the error.
absl::Status write_all(int fd, std::span<const std::byte> bytes, std::string_view name);
absl::Status write_all(int fd, std::string_view text, std::string_view name);

// Allocates all bytes of an empty file, as zeros, so that no write to a mapping of it can run out of space.
// RESOURCE_EXHAUSTED says how much is needed and how much there is.
absl::Status allocate_file(int fd, std::uint64_t bytes, const std::filesystem::path& path);

absl::Status sync_file(const std::filesystem::path& path);      // fsync: its content survives a loss of power
absl::Status sync_folder(const std::filesystem::path& folder);  // the names in it survive

// Whether the files of a folder live only in memory (tmpfs, ramfs), where no sync makes them survive a loss of power.
absl::StatusOr<bool> is_in_memory(const std::filesystem::path& folder);

}  // namespace bascule::inline v0
