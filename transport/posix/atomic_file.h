// AtomicFile: a file that appears whole or not at all. Bascule replaces all its files this way. Calls block, work from
// any thread, and keep no global state. Errors name the file and the system's error.
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

// A file under a temporary name beside `path`. publish() or commit() renames it to `path`; if neither was called, the
// destructor removes it. Move-only; a moved-from object holds nothing and may only be destroyed.
class AtomicFile {
 public:
  // The temporary name is `path` with `suffix` appended; by default ".tmp-PID", so that processes do not collide. A
  // file that a killed process left under that name is overwritten. `folder_fd` (borrowed) is a descriptor of the
  // folder that holds `path`: the file is then created and renamed through it, even if the folder itself was renamed.
  static absl::StatusOr<AtomicFile> create(const std::filesystem::path& path, mode_t mode = 0666,
                                           std::string_view suffix = "", int folder_fd = AT_FDCWD);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Allocates room for `bytes` more bytes, if the file system can.
  void reserve(std::size_t bytes);
  absl::Status append(std::span<const std::byte> bytes);
  absl::Status append(std::string_view text);

  // Replaces whatever `path` named, so that opening `path` finds either the old or the new file, whole. The new file is
  // not yet on the disk. To make it durable, fsync() the returned descriptor, which is the new file's, and call
  // sync_folder().
  absl::StatusOr<UniqueFd> publish();
  // Like publish(), and returns once the file is on the disk.
  absl::Status commit();

 private:
  AtomicFile(UniqueFd fd, std::filesystem::path path, std::filesystem::path temporary, int folder_fd);
  UniqueFd fd_;
  std::filesystem::path path_, temporary_;
  int folder_fd_;
};

// Replaces whatever `path` named with a file that holds `text` (0600), like AtomicFile::publish(). Keep the returned
// descriptor until the file is replaced again, and then close it on another thread, because closing a replaced file may
// wait for the disk. `folder_fd` as in AtomicFile::create().
absl::StatusOr<UniqueFd> replace_file(const std::filesystem::path& path, std::string_view text,
                                      int folder_fd = AT_FDCWD);

// Replaces `path` with a file that holds `text`, and returns once it is on the disk.
absl::Status write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace bascule::inline v0
