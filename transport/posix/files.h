// Reads whole files, with a bound on their size; allocates files in full; syncs files and folders.
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

// Returns the text of a file. Returns NOT_FOUND if there is no such file, and INVALID_ARGUMENT if it is longer than
// `max_bytes`.
absl::StatusOr<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// Returns the rest of an open file, from its current offset. `path` is for error texts.
absl::StatusOr<std::string> read_file(int fd, const std::filesystem::path& path, std::uint64_t max_bytes);

// Writes all of `bytes` at the descriptor's offset. `name` is the file's name, for the error.
absl::Status write_all(int fd, std::span<const std::byte> bytes, std::string_view name);
absl::Status write_all(int fd, std::string_view text, std::string_view name);

// The path of an open file, as /proc shows it, for error texts; preserves errno.
std::string path_of_file(int fd);

// Returns RESOURCE_EXHAUSTED, with the limit, if this process may not make a file of `bytes` bytes (ulimit -f). The
// system would also send SIGXFSZ, which ends the process.
absl::Status check_file_size(std::uint64_t bytes, std::string_view name);

// Allocates all bytes of an empty file, as zeros, so that no write to a mapping of it can run out of space. If space is
// short, returns RESOURCE_EXHAUSTED, which says how much is needed and how much there is.
absl::Status allocate_file(int fd, std::uint64_t bytes, const std::filesystem::path& path);

// fsync: after it, the names in the folder survive a loss of power. `folder_fd` may be O_PATH; the path is for texts.
absl::Status sync_folder(const std::filesystem::path& folder);
absl::Status sync_folder(int folder_fd, const std::filesystem::path& folder);

// Whether the files of an open folder live only in memory (tmpfs, ramfs), where no sync makes them survive a loss of
// power. The path is for texts.
absl::StatusOr<bool> is_in_memory(int folder_fd, const std::filesystem::path& folder);

}  // namespace bascule::inline v0
