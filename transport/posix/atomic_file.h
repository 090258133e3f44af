// AtomicFile: a file that is written whole or not at all. The one way in which files are replaced here. Blocks, works
// from any thread and keeps no state. Errors name the file and what the system said.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// A file under a temporary name beside `path`, which publish() or commit() renames. Dropped without either, it is
// removed. Move-only; moved from, it holds nothing and may only be destroyed.
class AtomicFile {
 public:
  // `suffix` is put behind the name for the time of writing; none: ".tmp-PID", so that processes do not meet. A file
  // that a killed process left under that name is overwritten. `folder_fd`: the folder of `path`, which is then found
  // by this descriptor, whatever its name is by now; borrowed.
  static absl::StatusOr<AtomicFile> create(const std::filesystem::path& path, mode_t mode = 0666,
                                           std::string_view suffix = "", int folder_fd = AT_FDCWD);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Allocates room for so many bytes beyond those that it has, where the file system can.
  void reserve(std::size_t bytes);
  absl::Status append(std::span<const std::byte> bytes);
  absl::Status append(std::string_view text);

  // Puts the file in the place of whatever `path` named: an open finds the old or the new, whole. Not yet on the disk:
  // fsync() of what it returns, the new file, and sync_folder() see to that.
  absl::StatusOr<UniqueFd> publish();
  // The same, and on the disk.
  absl::Status commit();

 private:
  AtomicFile(UniqueFd fd, std::filesystem::path path, std::filesystem::path temporary, int folder_fd);
  UniqueFd fd_;
  std::filesystem::path path_, temporary_;
  int folder_fd_;
};

// Puts a file with `text` (0600) in the place of whatever `path` named: a process that opens it finds the old file or
// the new one, whole. It is not yet on the disk: fsync() of the returned descriptor, the new file, and sync_folder() do
// that. Keep the descriptor, and close it on another thread once the file was replaced: the end of a file may wait for
// the disk. `folder_fd` as of AtomicFile::create().
absl::StatusOr<UniqueFd> replace_file(const std::filesystem::path& path, std::string_view text,
                                      int folder_fd = AT_FDCWD);

// The whole of `text` as `path`, on the disk.
absl::Status write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace bascule::inline v0
