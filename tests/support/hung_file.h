// An open file that never answers, like one on a server that hangs: any stat() of it waits until let_go(). It needs the
// right to mount FUSE file systems; tests without it are skipped.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "support/temp_folder.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::test {

class HungFile {
 public:
  HungFile() : device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    const std::string options = "fd=" + std::to_string(device_.get()) +
                                ",rootmode=40000,user_id=" + std::to_string(::getuid()) +
                                ",group_id=" + std::to_string(::getgid());
    if (!device_ || ::mount("hung", folder_.path().c_str(), "fuse", 0, options.c_str()) != 0) return;
    mounted_ = true;
    file_ = UniqueFd(::open(folder_.path().c_str(), O_PATH | O_CLOEXEC));
  }
  ~HungFile() {
    let_go();
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  HungFile(const HungFile&) = delete;
  HungFile& operator=(const HungFile&) = delete;

  bool open() const { return static_cast<bool>(file_); }
  void let_go() { device_.reset(); }  // what waits for the file gets an error

 private:
  TempFolder folder_;
  bool mounted_ = false;
  UniqueFd device_, file_;
};

}  // namespace bascule::test
