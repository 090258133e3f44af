// The folder of an endpoint. It is opened and checked once, so that every file comes from the checked folder; each file
// is checked when it is opened.
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

// An operation of the sender's end on a file, reported after it is done, on the thread that did it. Tests replay these
// operations.
struct FileOperation {
  enum class Kind { kMade, kWritten, kReplaced, kLinked, kRemoved, kSynced, kFolderSynced };
  Kind kind = Kind::kMade;
  std::string_view file;  // its name in the folder
};
using FileObserver = std::function<void(const FileOperation&)>;

class Folder {
 public:
  // Returns the errors of open_private_folder().
  static absl::StatusOr<Folder> open(std::filesystem::path path);

  // Returns the errors of open_private_file().
  absl::StatusOr<UniqueFd> file(const std::string& name, int flags = O_RDONLY) const {
    return open_private_file(fd_.get(), name, flags, path_);
  }
  absl::StatusOr<std::vector<SlotId>> slots() const;  // the slots with a file of any type here; unordered
  absl::Status sync() const;                          // fsync: after it, file names survive a loss of power
  int fd() const { return fd_.get(); }                // O_PATH
  const std::filesystem::path& path() const { return path_; }

 private:
  Folder(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace bascule::inline v0::memmap
