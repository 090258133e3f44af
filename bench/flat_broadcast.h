// One ncclBroadcast from a GPU to its peer GPU, its two ranks threads of this process: the baseline of sends over nccl.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/baselines.h>

namespace bascule::bench {

// `device` sends to the GPU `peer`, with `ctas` blocks of each (0: NCCL's choice), one broadcast after the other for
// each of `sizes`, in bytes, and each in pieces of `piece_bytes` (0: in one). The first broadcast, which is slow, is
// done when it returns.
absl::StatusOr<std::unique_ptr<PlainCopy>> make_flat_broadcast(int device, int peer, std::vector<std::uint64_t> sizes,
                                                               int ctas, std::uint64_t piece_bytes = 0);

}  // namespace bascule::bench
