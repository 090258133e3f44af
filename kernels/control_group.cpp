#include <bascule/kernels/control_group.h>

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace bascule::inline v0::kernels {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> first_words(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return words_of(line);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns nullopt if there is no such file, or no number in it ("max", -1).
std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::vector<std::string> words = first_words(path);
  return words.empty() ? std::nullopt : number(words[0]);
}

// The number after `key` in a file of lines "key number".
std::optional<std::uint64_t> number_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::vector<std::string> words = words_of(line); words.size() == 2 && words[0] == key)
      return number(words[1]);
  return std::nullopt;
}

bool has_piece(std::string_view list, std::string_view piece) {  // "rw,cpu,cpuacct" has "cpu"
  while (!list.empty()) {
    const std::string_view first = list.substr(0, list.find(','));
    if (first == piece) return true;
    list.remove_prefix(std::min(list.size(), first.size() + 1));
  }
  return false;
}

// Where a controller's groups are mounted; an empty name stands for version 2.
struct Mount {
  std::string shown;   // the group that the folder shows: "/", or a container's
  std::string folder;  // "/sys/fs/cgroup/memory"
};

std::optional<Mount> mount_of(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool fits = controller.empty() ? dash[1] == "cgroup2" : dash[1] == "cgroup" && has_piece(dash[3], controller);
    if (fits) return Mount{words[3], words[4]};
  }
  return std::nullopt;
}

// The group of this process, "/user.slice/session-1.scope".
std::optional<std::string> group_of(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path", "0::/path" for version 2
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : has_piece(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders of this process's group and of the enclosing groups, as far as they are visible here.
std::vector<std::string> folders_of(const std::string& root, std::string_view controller) {
  const std::optional<Mount> mount = mount_of(root, controller);
  std::optional<std::string> group = group_of(root, controller);
  if (!mount || !group) return {};
  if (mount->shown != "/") {  // a container that shows only its own group
    if (group->rfind(mount->shown, 0) == 0)
      group->erase(0, mount->shown.size());
    else
      group->clear();
  }
  if (group->find("/..") != std::string::npos) group->clear();  // outside the visible part
  std::vector<std::string> folders;
  while (!group->empty() && *group != "/") {
    folders.push_back(root + mount->folder + *group);
    group->erase(group->rfind('/'));
  }
  folders.push_back(root + mount->folder);
  return folders;
}

template <typename T>
void lower(std::optional<T>& limit, T value) {
  limit = std::min(limit.value_or(value), value);
}

void lower_memory(ControlGroupLimits& limits, std::optional<std::uint64_t> limit, std::optional<std::uint64_t> used,
                  std::optional<std::uint64_t> cached) {
  if (!limit || !used) return;
  const std::uint64_t held = *used - std::min(*used, cached.value_or(0));
  const std::uint64_t left = *limit - std::min(*limit, held);
  if (left < limits.memory_left_bytes.value_or(left + 1)) limits.memory_limit_bytes = limit;
  lower(limits.memory_left_bytes, left);
}

void lower_threads(ControlGroupLimits& limits, std::optional<std::uint64_t> limit, std::optional<std::uint64_t> used) {
  if (!limit || !used) return;
  const std::uint64_t left = *limit - std::min(*limit, *used);
  if (left < limits.threads_left.value_or(left + 1)) limits.threads_limit = limit;
  lower(limits.threads_left, left);
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& root) {
  ControlGroupLimits limits;
  for (const std::string& folder : folders_of(root, "")) {                   // version 2
    const std::vector<std::string> time = first_words(folder + "/cpu.max");  // "150000 100000", or "max 100000"
    if (time.size() == 2)
      if (const auto quota = number(time[0]), period = number(time[1]); quota && period.value_or(0) > 0)
        lower(limits.cores, static_cast<double>(*quota) / static_cast<double>(*period));
    lower_memory(limits, number_in(folder + "/memory.max"), number_in(folder + "/memory.current"),
                 number_of(folder + "/memory.stat", "inactive_file"));
    lower_threads(limits, number_in(folder + "/pids.max"), number_in(folder + "/pids.current"));
  }
  for (const std::string& folder : folders_of(root, "cpu")) {
    const auto quota = number_in(folder + "/cpu.cfs_quota_us"), period = number_in(folder + "/cpu.cfs_period_us");
    if (quota && period.value_or(0) > 0)
      lower(limits.cores, static_cast<double>(*quota) / static_cast<double>(*period));
  }
  for (const std::string& folder : folders_of(root, "memory"))
    lower_memory(limits, number_in(folder + "/memory.limit_in_bytes"), number_in(folder + "/memory.usage_in_bytes"),
                 number_of(folder + "/memory.stat", "total_inactive_file"));
  for (const std::string& folder : folders_of(root, "pids"))
    lower_threads(limits, number_in(folder + "/pids.max"), number_in(folder + "/pids.current"));
  return limits;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const double time = control_group_limits().cores.value_or(cores);
  return std::max(1, static_cast<int>(std::ceil(std::min(static_cast<double>(cores), time))));
}

}  // namespace bascule::inline v0::kernels
