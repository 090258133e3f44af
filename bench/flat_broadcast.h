// One ncclBroadcast from a GPU to its peer GPU, between two threads of this process: the baseline of sends over nccl.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/baselines.h>
#include <bascule/bench/scenario.h>

namespace bascule::bench {

// Makes the copy from the models' device to the workers' device: one broadcast after another, of `sizes` bytes, each
// whole or in pieces like the scheme's. It uses the endpoint's number of blocks per GPU. The first broadcast, which is
// slow, is done when this returns.
absl::StatusOr<std::unique_ptr<PlainCopy>> make_flat_broadcast(const Context& context, std::vector<std::uint64_t> sizes,
                                                               bool in_pieces = false);

}  // namespace bascule::bench
