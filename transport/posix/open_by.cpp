#include <bascule/transport/posix/open_by.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace fs = std::filesystem;

using File = std::pair<dev_t, ino_t>;

bool has_open(const fs::path& process, const std::set<File>& files, const std::string& except = {}) {
  std::error_code gone;
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end; at.increment(gone)) {
    struct stat open {};
    if (at->path().filename() == except) continue;
    if (::stat(at->path().c_str(), &open) == 0 && files.contains({open.st_dev, open.st_ino})) return true;
  }
  return false;
}

struct ProcessState {
  char letter = 0;  // 0: there is no such process
  std::uint64_t started = 0;
};

// From /proc/<pid>/stat: "pid (name) letter …", with the start in the 22nd field. A name may hold spaces and brackets.
ProcessState state_of(pid_t pid) {
  constexpr int kFieldsToStart = 19;  // from the letter's, the third
  std::ifstream file(fs::path("/proc") / std::to_string(pid) / "stat");
  std::string line;
  std::getline(file, line);
  const std::size_t named = line.rfind(')');
  if (named == std::string::npos) return {};
  std::istringstream rest(line.substr(named + 1));
  ProcessState state;
  rest >> state.letter;
  std::string skipped;
  for (int i = 1; i < kFieldsToStart; ++i) rest >> skipped;
  rest >> state.started;
  return state;
}

}  // namespace

std::vector<Process> others_with_open(std::span<const int> fds) {
  std::vector<Process> found;
  std::set<File> files;
  for (const int fd : fds)
    if (struct stat file{}; ::fstat(fd, &file) == 0) files.emplace(file.st_dev, file.st_ino);
  if (files.empty()) return found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    Process process;
    if (!absl::SimpleAtoi(at->path().filename().native(), &process.pid) || process.pid == ::getpid()) continue;
    if (!has_open(at->path(), files)) continue;
    std::ifstream name(at->path() / "comm");
    std::getline(name, process.name);
    found.push_back(std::move(process));
  }
  std::ranges::sort(found, {}, &Process::pid);
  return found;
}

bool opened_twice_here(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && has_open("/proc/self", {{file.st_dev, file.st_ino}}, std::to_string(fd));
}

std::string names_of(const std::vector<Process>& processes) {
  constexpr std::size_t kShown = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, processes.size()); ++i)
    names += cat(i == 0 ? "" : ", ", "pid ", processes[i].pid, " (", processes[i].name, ")");
  return processes.size() > kShown ? cat(names, " and ", processes.size() - kShown, " more") : names;
}

ProcessMark mark_of(pid_t pid) { return {.pid = pid, .started = pid > 0 ? state_of(pid).started : 0}; }

bool has_ended(const ProcessMark& process) {
  if (process.started == 0) return false;  // /proc did not show it even then
  const ProcessState now = state_of(process.pid);
  return now.letter == 0 || now.letter == 'Z' || now.letter == 'X' || now.started != process.started;
}

}  // namespace bascule::inline v0
