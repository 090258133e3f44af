// Whether others still find a sender's files where it made them. A folder in /tmp that was tidied away leaves the
// sender as it was, but no worker finds it any more, and the next sender would not find its lock.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace bascule::inline v0 {

class EndpointWatch {
 public:
  void add(const std::filesystem::path& file);  // as it is now
  // A sentence about the first that is gone, or is another file by now. Waits as long as the file system does.
  std::optional<std::string> missing() const;

 private:
  struct File {
    std::filesystem::path path;
    dev_t device = 0;
    ino_t inode = 0;
  };
  std::vector<File> files_;
};

}  // namespace bascule::inline v0
