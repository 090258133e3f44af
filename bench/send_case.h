// The common scenario: sends of one shape, alternating with a flat copy.
#pragma once

#include <memory>
#include <string>

#include <bascule/bench/rig.h>
#include <bascule/bench/scenario.h>

namespace bascule::bench {

struct SendCase {
  RigOptions rig{};
  int repeat = 1;
  double copied_share = 1;             // bytes that the baseline copies, as a share of a slot
  int busy_threads = 0;                // in addition to packing threads, and to engines that step or spin
  const char* only_on_host = nullptr;  // why this scenario has no row for GPUs (check_on_host)
  bool after_pack = false;  // adds a record of the time after the pack; its baseline is two turns of Unix sockets
};

// Adds one record. Checks first that model, slots and the baseline's target fit into memory.
absl::Status measure_sends(Context& context, std::string_view scenario, const SendCase& send_case);

// Returns the baseline of a send of `bytes` bytes from the models' device to the workers' device.
absl::StatusOr<std::unique_ptr<PlainCopy>> copy_of(Context& context, std::uint64_t bytes);

// Returns OK if a model, two slots and `baseline_bytes` fit into the free memory of their devices.
absl::Status check_rig_fits(Context& context, const ModelShape& model, std::uint64_t slot_bytes,
                            std::uint64_t baseline_bytes, int workers = 1);

// Returns OK if models and workers are in host memory, else UNIMPLEMENTED, whose text says `why` this scenario has no
// row.
absl::Status check_on_host(const Context& context, std::string_view why);

}  // namespace bascule::bench
