// nccl: versions broadcast by NCCL, from the trainer's GPU to engines on other GPUs, of this host or others. A slot is
// memory of the sender's device; each worker has memory of its own, into which the bytes come piece by piece while the
// slot is still packed. What a killed process leaves behind: nothing but what NCCL keeps of an init that was never
// finished (a thread and some descriptors in the trainer, counted and bounded).
//
// schemes/nccl/README.md has the states of a communicator, the environment, and how to reach other hosts.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/comm_group.h>
#include <bascule/schemes/nccl/library.h>
#include <bascule/schemes/nccl/place.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme nccl_scheme();

namespace nccl {

// Between two pieces the wire stands still for some 30 us, while a call of NCCL that does not block comes back; a piece
// takes 750 us over NVLink.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{256} << 20;

// The library and the devices that both ends use; tests pass others.
struct Dependencies {
  std::function<absl::StatusOr<const Library*>()> library;
  FindPlace place;
  std::uint64_t piece_bytes = 0;  // whole tiles
  CommGroupLimits limits{};       // of a sender
};

Scheme scheme_on(const Dependencies& dependencies);

}  // namespace nccl
}  // namespace bascule::inline v0
