// A small separate file system, for tests of disks that are full, read-only, or without O_DIRECT. It needs the right to
// mount; tests without it are skipped.
#pragma once

#include <sys/mount.h>

#include <filesystem>
#include <string>

#include "support/temp_folder.h"

namespace bascule::test {

class MountedFolder {
 public:
  // `type` is "tmpfs" or "ramfs" (which has no O_DIRECT); `options` are mount's, such as "size=1m".
  explicit MountedFolder(const std::string& type, const std::string& options = "") {
    const std::string all = "mode=700" + (options.empty() ? "" : "," + options);
    mounted_ = ::mount("none", folder_.path().c_str(), type.c_str(), 0, all.c_str()) == 0;
  }
  ~MountedFolder() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  MountedFolder(const MountedFolder&) = delete;
  MountedFolder& operator=(const MountedFolder&) = delete;

  bool mounted() const { return mounted_; }
  bool make_read_only() {
    return ::mount(nullptr, folder_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
  bool mounted_ = false;
};

}  // namespace bascule::test
