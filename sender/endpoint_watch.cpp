#include <bascule/sender/endpoint_watch.h>

#include <sys/stat.h>

#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void EndpointWatch::add(const std::filesystem::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) == 0) files_.push_back({file, status.st_dev, status.st_ino});
}

std::optional<std::string> EndpointWatch::missing() const {
  for (const File& file : files_) {
    struct stat status {};
    const bool found = ::lstat(file.path.c_str(), &status) == 0;
    if (found && status.st_dev == file.device && status.st_ino == file.inode) continue;
    if (!found && errno != ENOENT && errno != ENOTDIR) continue;  // unknown
    return cat(file.path.string(), found ? " was replaced" : " was removed",
               " while this sender runs: connected workers stay, but no other worker can find it; restart ",
               "it, in a folder that no clean-up removes");
  }
  return std::nullopt;
}

}  // namespace bascule::inline v0
