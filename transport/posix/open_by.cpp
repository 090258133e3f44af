#include <bascule/transport/posix/open_by.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"

namespace bascule::inline v0 {
namespace {

namespace fs = std::filesystem;

bool has_open(const fs::path& process, const struct stat& file, const std::string& except = {}) {
  std::error_code gone;
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end; at.increment(gone)) {
    struct stat open {};
    if (at->path().filename() == except) continue;
    if (::stat(at->path().c_str(), &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino) return true;
  }
  return false;
}

}  // namespace

std::vector<Process> others_with_open(int fd) {
  std::vector<Process> found;
  struct stat file {};
  if (::fstat(fd, &file) != 0) return found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    Process process;
    if (!absl::SimpleAtoi(at->path().filename().native(), &process.pid) || process.pid == ::getpid()) continue;
    if (!has_open(at->path(), file)) continue;
    std::ifstream name(at->path() / "comm");
    std::getline(name, process.name);
    found.push_back(std::move(process));
  }
  std::ranges::sort(found, {}, &Process::pid);
  return found;
}

bool opened_twice_here(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && has_open("/proc/self", file, std::to_string(fd));
}

}  // namespace bascule::inline v0
