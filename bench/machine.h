// The machine of a measurement. Figures of different machines are not compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace bascule::bench {

struct Machine {
  // cpu, cores, memory_bytes, kernel, shmem_enabled, governor, filesystem (of the slots' folder) and, if a GPU took
  // part, gpu; all as text, "unknown" if the system does not report it.
  std::map<std::string, std::string> facts;

  // Returns an empty text if figures of both machines may be compared, else the differences: "cpu: X and Y". Memory and
  // filesystem may differ.
  std::string difference(const Machine& other) const;
};

Machine this_machine(const std::filesystem::path& folder);

// Returns the kernel's estimate of free bytes, or fewer if the process's control group is limited.
std::uint64_t available_memory_bytes();

}  // namespace bascule::bench
