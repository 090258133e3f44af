// Shared memory without a name. It is freed when its last descriptor and mapping are gone, so a crash leaks nothing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0 {

// Makes a memfd of at least `bytes`, allocates it in full, maps it writable here and then seals it, so that no process
// can resize it, make a new writable mapping, or change the seals. It uses huge pages if the system has them; the
// result's `description` names the kind. Returns RESOURCE_EXHAUSTED if memory is short on the machine, or in the
// process's control group, which would otherwise kill the process.
absl::StatusOr<SlotMemory> make_memfd(const char* name, std::uint64_t bytes);

// The same, without the two seals against writers: any process with the descriptor may map it writable, until
// seal_memfd(). Its size is fixed already. For a slot that several processes write, and for memory that they share.
absl::StatusOr<SlotMemory> make_unsealed_memfd(const char* name, std::uint64_t bytes);
// From now on no process can make a new writable mapping; existing ones can still be written. UNIMPLEMENTED: this
// kernel cannot seal it.
absl::Status seal_memfd(int fd);

// Like make_memfd(), but allocates only the first `allocated` bytes. allocate_memfd() must allocate other bytes before
// they are touched, since a missing page could be a SIGBUS. Both round to whole pages.
absl::StatusOr<SlotMemory> make_sparse_memfd(const char* name, std::uint64_t bytes, std::uint64_t allocated);
absl::Status allocate_memfd(int fd, std::uint64_t offset, std::uint64_t bytes);

// Returns OK if `fd` is a memfd of at least `bytes` that no process can shrink or write through a new mapping. A reader
// checks this before it maps the memfd, because a sender that could shrink it could kill the reader with SIGBUS.
absl::Status check_sealed(int fd, std::uint64_t bytes);

}  // namespace bascule::inline v0
