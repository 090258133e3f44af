// The machine that figures belong to: figures of two machines are not compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace bascule::bench {

struct Machine {
  // cpu, cores, memory_bytes, kernel, shmem_enabled, governor, filesystem (of the slots' folder) and, where a GPU took
  // part, gpu; all as text, "unknown" where the system does not say.
  std::map<std::string, std::string> facts;

  // Empty where figures of both may be compared; else what differs, as "cpu: X and Y". A machine's memory and the
  // filesystem may.
  std::string difference(const Machine& other) const;
};

Machine this_machine(const std::filesystem::path& folder);

// Bytes that are free, by the kernel's estimate, or less where the process's control
// group is limited.
std::uint64_t available_memory_bytes();

}  // namespace bascule::bench
