// cuda-ipc: memory of one GPU shared by descriptor. A slot is a driver allocation (cuMemCreate) on the device of the
// trainer's tensors. Readers map it read-only, on the same device or on a peer GPU, and read in place, so nothing is
// delivered or copied. The memory has no name: it is freed with the last process that maps it, even if that is killed.
//
// Readers choose to map read-only, as a guard against accidents: a process with the descriptor could also write.
#pragma once

#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme cuda_ipc_scheme();

// The same scheme without its sender and receiver, with the facts that every build knows.
Scheme cuda_ipc_facts();

}  // namespace bascule::inline v0
