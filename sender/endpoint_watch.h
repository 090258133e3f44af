// Checks that a sender's files are still where it made them. If its folder in /tmp is cleaned up, the sender keeps
// working, but no worker can find it any longer, and the next sender would not find its lock.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace bascule::inline v0 {

class EndpointWatch {
 public:
  void add(const std::filesystem::path& file);  // remembers which file it is now
  // Returns a sentence about the first file that is gone or was replaced. Blocks as long as the file system does.
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
