// What most scenarios are: sends of one shape in turns with a flat copy.
#pragma once

#include <memory>
#include <string>

#include <bascule/bench/rig.h>
#include <bascule/bench/scenario.h>

namespace bascule::bench {

struct SendCase {
  RigOptions rig{};
  int repeat = 1;
  double copied_share = 1;  // bytes that the baseline copies, over those of a slot
  int busy_threads = 0;     // beside those that pack, and engines that step or spin
  bool after_pack =
      false;  // adds a second record: from the end of the pack to the return, over two turns of Unix sockets
};

// Adds one record. Checks first that model, slots and the baseline's target fit into memory.
absl::Status measure_sends(Context& context, std::string_view scenario, const SendCase& send_case);

// The baseline of a send of `bytes` from where models lie to where workers read.
absl::StatusOr<std::unique_ptr<PlainCopy>> copy_of(Context& context, std::uint64_t bytes);

// OK where a model, two slots and `baseline_bytes` fit now into the memory where each lies.
absl::Status check_rig_fits(Context& context, const ModelShape& model, std::uint64_t slot_bytes,
                            std::uint64_t baseline_bytes, int workers = 1);

// OK where models and workers are the host's. UNIMPLEMENTED: they are not, and `why` this scenario then has no row.
absl::Status check_on_host(const Context& context, std::string_view why);

}  // namespace bascule::bench
