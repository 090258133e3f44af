// One ncclBroadcast from a GPU to its peer GPU, its two ranks threads of this process: the baseline of sends over nccl.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/baselines.h>
#include <bascule/bench/scenario.h>

namespace bascule::bench {

// From where models lie to where workers read, with as many blocks of each GPU as the endpoint says: one broadcast
// after the other for each of `sizes`, in bytes, each in one, or in pieces as the scheme sends it. The first
// broadcast, which is slow, is done when it returns.
absl::StatusOr<std::unique_ptr<PlainCopy>> make_flat_broadcast(const Context& context, std::vector<std::uint64_t> sizes,
                                                               bool in_pieces = false);

}  // namespace bascule::bench
