// nccl: versions broadcast by NCCL, from the trainer's GPU to engines on other GPUs, of this host or others. A slot is
// memory of the sender's device. Each worker has its own memory, into which the bytes come piece by piece while the
// slot is still packed. A killed process leaves nothing, except that NCCL keeps a thread and some descriptors in the
// trainer for each unfinished init; these are counted and bounded.
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
