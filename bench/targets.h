// What we want of each measurement, on two cores or more; docs/benchmarking.md says why. With the kind of memory that a
// scheme's slots are made of, this is all that the bench knows of schemes.
#pragma once

#include <optional>
#include <string_view>

#include "bench/limits.h"
#include "bench/record.h"

namespace bascule::bench {

// The target of `record` by its scheme, scenario and sizes; none where none was set.
std::optional<Target> target_of(const Record& record);

// What the flat copy of a scheme's limit writes into.
FlatCopy::Into slot_memory_of(std::string_view scheme);

// Whether its slots are memory of the GPU that the trainer's tensors lie on.
bool keeps_slots_on_gpu(std::string_view scheme);

inline constexpr double kMostBeyondSlotsBytes = 16 << 20;       // of a sender, and of a receiver that reads in place
inline constexpr double kMostOfGpuBeyondSlotsBytes = 64 << 20;  // the same, of a GPU's memory beside the CUDA context
inline constexpr double kMostGrowthBytes = 1 << 20;  // over 10,000 versions: what an allocator may keep by chance

}  // namespace bascule::bench
