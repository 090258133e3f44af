// Shared memory without a name: it goes when the last descriptor and mapping go, so a crash leaves nothing
// behind.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0 {

// A memfd of at least `bytes`, allocated in full (RESOURCE_EXHAUSTED where memory is short, here or in
// the process's control group, which would end it), mapped writable
// here and then sealed: no process can resize it, map it writable anew, or change the seals. On huge pages where
// the system gives them; `description` says which it got.
absl::StatusOr<SlotMemory> make_memfd(const char* name, std::uint64_t bytes);

// Whether `fd` is a memfd of at least `bytes` that no process can shrink or write through a new mapping. What a
// reader checks before it maps: a file that can be shrunk would let the sender kill it with SIGBUS.
absl::Status check_sealed(int fd, std::uint64_t bytes);

}  // namespace bascule::inline v0
