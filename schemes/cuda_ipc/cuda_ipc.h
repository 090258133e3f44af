// cuda-ipc: memory of one GPU shared by descriptor. A slot is an allocation of the driver's (cuMemCreate) on the device
// of the trainer's tensors; readers map it read-only, on the same device or on a peer GPU that reaches it, and read in
// place, so that nothing is delivered and nothing is copied. The memory goes with the last process that has it mapped,
// killed or not: no segment has a name.
//
// Readers map read-only by their own choice, a guard against accidents: a process with the descriptor could also write.
#pragma once

#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme cuda_ipc_scheme();

// The same without its two ends: what every build knows of it.
Scheme cuda_ipc_facts();

}  // namespace bascule::inline v0
