// The targets of measurements on two cores or more; docs/measurements/README.md gives the reasons. A record's target
// depends on the registry's facts about its scheme, never on the scheme's name, so schemes that this build lacks also
// have targets.
#pragma once

#include <optional>
#include <string_view>

#include <bascule/bench/baselines.h>
#include <bascule/bench/record.h>

namespace bascule::bench {

// Returns the target of `record` by its scheme, scenario and sizes; nullopt if none is set.
std::optional<Goal> target_of(const Record& record);

// Returns the kind of memory that the flat copy, the scheme's baseline, writes into.
FlatCopy::Into slot_memory_of(std::string_view scheme);

// Returns true if the scheme brings versions to each worker's own memory, like a broadcast.
bool broadcasts(std::string_view scheme);

inline constexpr double kMostBeyondSlotsBytes = 16 << 20;       // for a sender, and for a receiver that reads in place
inline constexpr double kMostOfGpuBeyondSlotsBytes = 64 << 20;  // the same in GPU memory, without the CUDA context
inline constexpr double kMostGrowthBytes = 1 << 20;  // over 10,000 versions: what an allocator may keep by chance

// The most that a fleet may cost its sender.
inline constexpr double kMostCpuOfSendMicroseconds = 40;    // per worker and send
inline constexpr double kMostGrowthOfSend = 1.2;            // from 64 workers to a thousand
inline constexpr double kMostCpuOfJoinsMilliseconds = 500;  // 512 at once, 338 tensors
inline constexpr double kMostMemoryOfWorkerBytes = 16 << 10;
inline constexpr double kMostMemoryOfManyTensorsBytes = 64 << 10;  // with 10,000 tensors
inline constexpr double kMostOfDeathMilliseconds = 5;              // what a death costs the others, among 512
inline constexpr double kMostHeartbeatPercent = 2;                 // of a core, for 1,024 heartbeats per second
inline constexpr double kMostOfFirstSendSeconds = 5;               // 24 workers, 100,000 tensors

// The most that 64 ranks of a sharded trainer may cost.
inline constexpr double kMostOfRankOverWorker = 1.3;      // CPU per send, over an unsharded sender's worker
inline constexpr double kMostOfRegisteringSeconds = 1;    // 10,000 tensors
inline constexpr double kMostPlanningMessagesOfSend = 0;  // of a send after the first

}  // namespace bascule::bench
