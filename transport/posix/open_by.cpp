#include <bascule/transport/posix/open_by.h>

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace fs = std::filesystem;

std::string link_of(const fs::path& descriptor) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(descriptor.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

// From the line "ino:" of /proc/<pid>/fdinfo/<n>, which Linux has since 5.14.
std::string inode_of(const fs::path& process, const fs::path& descriptor) {
  std::ifstream info(process / "fdinfo" / descriptor);
  std::string key, value;
  while (info >> key >> value)
    if (key == "ino:") return value;
  return {};
}

// Calls `found` with the place in `files` of each that the process has open.
template <typename Found>
void look_through(const fs::path& process, const std::multimap<std::string_view, std::size_t>& places,
                  std::span<const OpenFile> files, const std::string& except, Found found) {
  std::error_code gone;
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end; at.increment(gone)) {
    const fs::path descriptor = at->path().filename();
    if (descriptor == except) continue;
    const std::string link = link_of(at->path());
    auto [place, last] = places.equal_range(link);
    if (place == last) continue;
    const std::string inode = inode_of(process, descriptor);
    for (; place != last; ++place)
      if (inode.empty() || files[place->second].inode.empty() || inode == files[place->second].inode)
        found(place->second);
  }
}

std::multimap<std::string_view, std::size_t> by_link(std::span<const OpenFile> files) {
  std::multimap<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < files.size(); ++i) places.emplace(files[i].link, i);
  return places;
}

struct ProcessState {
  bool there = false;
  char letter = 0;
  int threads = 0;
  std::uint64_t started = 0;

  // Its first thread may have ended (a zombie) while others run.
  bool has_ended() const { return !there || letter == 'X' || (letter == 'Z' && threads <= 1); }
};

// From /proc/<pid>/stat: "pid (name) letter …", with the number of threads in the 20th field and the start in the 22nd.
// A name may hold spaces and brackets. Returns nullopt if that cannot be read, as without a free descriptor.
std::optional<ProcessState> state_of(pid_t pid) {
  constexpr int kFieldsToThreads = 17;  // from the letter's, the third
  constexpr std::uint64_t kMostBytes = 4096;
  const absl::StatusOr<std::string> line = read_file(fs::path("/proc") / std::to_string(pid) / "stat", kMostBytes);
  if (absl::IsNotFound(line.status()) && fs::exists("/proc/self/stat")) return ProcessState();
  const std::size_t named = line.ok() ? line->rfind(')') : std::string::npos;
  if (named == std::string::npos) return std::nullopt;
  std::istringstream rest(line->substr(named + 1));
  ProcessState state{.there = true};
  rest >> state.letter;
  std::string skipped;
  for (int i = 1; i < kFieldsToThreads; ++i) rest >> skipped;
  rest >> state.threads >> skipped >> state.started;
  return state;
}

}  // namespace

std::optional<OpenFile> open_file(int fd) {
  const std::string descriptor = std::to_string(fd);
  std::string link = link_of(fs::path("/proc/self/fd") / descriptor);
  if (link.empty()) return std::nullopt;
  return OpenFile{.link = std::move(link), .inode = inode_of("/proc/self", descriptor)};
}

std::vector<std::vector<Process>> others_with_open(std::span<const OpenFile> files, Deadline deadline) {
  std::vector<std::vector<Process>> found(files.size());
  if (files.empty()) return found;
  const auto places = by_link(files);
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    Process process;
    if (!absl::SimpleAtoi(at->path().filename().native(), &process.pid) || process.pid == ::getpid()) continue;
    if (deadline.passed()) break;
    std::set<std::size_t> open;
    look_through(at->path(), places, files, {}, [&](std::size_t place) { open.insert(place); });
    if (open.empty()) continue;
    std::ifstream name(at->path() / "comm");
    std::getline(name, process.name);
    for (const std::size_t place : open) found[place].push_back(process);
  }
  for (std::vector<Process>& processes : found) std::ranges::sort(processes, {}, &Process::pid);
  return found;
}

bool has_open(pid_t pid, const OpenFile& file, int except) {
  const std::span<const OpenFile> files(&file, 1);
  bool has = false;
  look_through(fs::path("/proc") / std::to_string(pid), by_link(files), files,
               except < 0 ? std::string() : std::to_string(except), [&](std::size_t) { has = true; });
  return has;
}

std::string names_of(const std::vector<Process>& processes) {
  constexpr std::size_t kShown = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, processes.size()); ++i)
    names += cat(i == 0 ? "" : ", ", "pid ", processes[i].pid, " (", processes[i].name, ")");
  return processes.size() > kShown ? cat(names, " and ", processes.size() - kShown, " more") : names;
}

ProcessMark mark_of(pid_t pid) {
  const std::optional<ProcessState> state = pid > 0 ? state_of(pid) : std::nullopt;
  return {.pid = pid, .started = state ? state->started : 0};
}

bool has_ended(const ProcessMark& process) {
  if (process.started == 0) return false;  // /proc did not show it even then
  const std::optional<ProcessState> now = state_of(process.pid);
  return now && (now->has_ended() || now->started != process.started);
}

}  // namespace bascule::inline v0
