// What most scenarios are: sends of one shape in turns with a flat copy.
#pragma once

#include <string>

#include "bench/rig.h"
#include "bench/scenario.h"

namespace bascule::bench {

struct SendCase {
  RigOptions rig{};
  int repeat = 1;
  double copied_share = 1;  // bytes that the limit copies, over those of a slot
  int busy_threads = 0;     // beside those that pack, and engines that step or spin
};

// Adds one record. Checks first that model, slots and the limit's target fit into memory.
absl::Status measure_sends(Context& context, std::string_view scenario, const SendCase& send_case);

// OK where a model, two slots and `limit_bytes` fit into memory now.
absl::Status check_rig_fits(const ModelShape& model, std::uint64_t slot_bytes, std::uint64_t limit_bytes);

}  // namespace bascule::bench
