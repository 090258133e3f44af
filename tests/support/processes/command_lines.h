// Finds processes of this machine by their command lines.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::test {

// Its arguments, each with a NUL at its end; empty for a zombie, and for a process that ends while this reads.
inline std::string command_line(pid_t pid) {
  std::ostringstream words;
  words << std::ifstream("/proc/" + std::to_string(pid) + "/cmdline").rdbuf();
  return words.str();
}

// The processes with `text` in their command line, without zombies.
inline std::vector<pid_t> processes_with(std::string_view text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    if (command_line(pid).find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace bascule::test
