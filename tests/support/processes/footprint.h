// The system resources that a process holds. Compared before and after a test's work, they show leaks.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>

namespace bascule::test {

struct Footprint {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t mappings = 0;  // of memfds named bascule…, and of files of slots
  // Returns true if this is at most `most`, for each resource.
  bool within(const Footprint& most) const {
    return descriptors <= most.descriptors && threads <= most.threads && mappings <= most.mappings;
  }
  friend std::ostream& operator<<(std::ostream& to, const Footprint& print) {
    return to << print.descriptors << " descriptors, " << print.threads << " threads, " << print.mappings
              << " mappings";
  }

  static Footprint now() { return of("self"); }
  static Footprint of(pid_t pid) { return of(std::to_string(pid)); }

 private:
  static Footprint of(const std::string& process) {
    const std::filesystem::path proc = std::filesystem::path("/proc") / process;
    const auto entries = [](const std::filesystem::path& folder) {
      return static_cast<std::size_t>(
          std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
    };
    Footprint print{.descriptors = entries(proc / "fd"), .threads = entries(proc / "task"), .mappings = 0};
    std::ifstream maps(proc / "maps");
    for (std::string line; std::getline(maps, line);)
      print.mappings +=
          line.find("memfd:bascule") != std::string::npos || line.find("/slot-") != std::string::npos ? 1 : 0;
    return print;
  }
};

}  // namespace bascule::test
