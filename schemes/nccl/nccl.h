// nccl: versions broadcast by NCCL, from the trainer's GPU to engines on other GPUs, of this host or others. A slot is
// memory of the sender's device; each worker has memory of its own, into which the bytes come piece by piece while the
// slot is still packed. What a killed process leaves behind: nothing but what NCCL keeps of an init that was never
// finished (a thread and some descriptors in the trainer, counted and bounded).
//
// schemes/nccl/README.md has the states of a communicator, the environment, and how to reach other hosts.
#pragma once

#include <bascule/schemes/nccl/dependencies.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme nccl_scheme();

namespace nccl {

Scheme scheme_on(const Dependencies& dependencies);

}  // namespace nccl
}  // namespace bascule::inline v0
