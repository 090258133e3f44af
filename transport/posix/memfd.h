// Shared memory without a name: it is freed with its last descriptor and mapping, so a crash leaks nothing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0 {

// A memfd of at least `bytes`, allocated in full, mapped writable here and then sealed: no process can resize it, make
// a new writable mapping, or change the seals. It uses huge pages if the system has them; `description` names the kind.
// RESOURCE_EXHAUSTED: memory is short on the machine or in the process's control group, which would kill the process.
absl::StatusOr<SlotMemory> make_memfd(const char* name, std::uint64_t bytes);

// Whether `fd` is a memfd of at least `bytes` that no process can shrink or write through a new mapping. A reader
// checks this before it maps: if the file could shrink, the sender could kill it with SIGBUS.
absl::Status check_sealed(int fd, std::uint64_t bytes);

}  // namespace bascule::inline v0
