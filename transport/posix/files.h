// Whole files: read under a bound, replaced by rename, allocated in full; and folders on the disk.
//
// Everything here blocks, works from any thread and keeps no state. Errors name the file and what the system said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/posix/unique_fd.h"

namespace bascule {

// The text of a file. NOT_FOUND where there is none, INVALID_ARGUMENT where it is longer than `max_bytes`.
absl::StatusOr<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Puts a file with `text` (0600) in the place of whatever `path` named: whoever opens it finds the old or the new,
// whole. Not yet on the disk: fsync() of what it returns, the new file, and sync_folder() see to that. Who keeps that,
// and closes it on another thread once it was replaced, spares his own the wait for a disk that the end of a file may
// be.
absl::StatusOr<UniqueFd> replace_file(const std::filesystem::path& path, std::string_view text);

// Gives an empty file all its bytes, zeros, so that no write to a mapping of it can run out of space.
// RESOURCE_EXHAUSTED says how much it needs and how much there is.
absl::Status allocate_file(int fd, std::uint64_t bytes, const std::filesystem::path& path);

absl::Status sync_file(const std::filesystem::path& path);      // fsync: what it holds survives a loss of power
absl::Status sync_folder(const std::filesystem::path& folder);  // and so do the names in it

// Whether the files of a folder live in memory alone (tmpfs, ramfs): no sync keeps them through a loss of power.
absl::StatusOr<bool> is_in_memory(const std::filesystem::path& folder);

}  // namespace bascule
