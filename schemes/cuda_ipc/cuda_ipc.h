// cuda-ipc: memory of one GPU shared by descriptor. A slot is an allocation of the driver's (cuMemCreate) on the device
// of the trainer's tensors; readers map it read-only, on the same device or on a peer that reaches it, and read in
// place, so that nothing is delivered and nothing is copied. The memory goes with the last process that has it mapped,
// killed or not: no segment has a name.
//
// That readers map read-only is their own choice, a guard against accidents: who has the descriptor could write.
#pragma once

#include "transport/scheme.h"

namespace bascule {

Scheme cuda_ipc_scheme();

}  // namespace bascule
