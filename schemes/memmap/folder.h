// The folder of an endpoint as memmap reads it: opened once, so that every file comes from the folder that was checked,
// and each file checked in its turn.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0::memmap {

// What the sender's end did to a file, told when it is done; from its thread. For tests that replay it.
struct FileOperation {
  enum class Kind { kMade, kWritten, kReplaced, kLinked, kRemoved, kSynced, kFolderSynced };
  Kind kind = Kind::kMade;
  std::string_view file;  // its name in the folder
};
using FileObserver = std::function<void(const FileOperation&)>;

class Folder {
 public:
  // Errors as of open_private_folder().
  static absl::StatusOr<Folder> open(std::filesystem::path path);

  // Errors as of open_private_file().
  absl::StatusOr<UniqueFd> file(const std::string& name, int flags = O_RDONLY) const {
    return open_private_file(fd_.get(), name, flags, path_);
  }
  std::vector<SlotId> slots() const;                       // that have a file here, whatever it is; in no order
  bool has(const std::string& name) const;                 // whatever it is
  std::string link_target(const std::string& name) const;  // empty: no symbolic link has that name
  absl::Status sync() const;                               // fsync: its names survive a loss of power
  int fd() const { return fd_.get(); }                     // O_PATH
  const std::filesystem::path& path() const { return path_; }

 private:
  Folder(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace bascule::inline v0::memmap
