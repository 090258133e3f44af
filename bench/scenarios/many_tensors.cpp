// many_tensors: 10,000 tensors of 1 KiB beside one flat copy of their bytes.
#include "bench/send_case.h"

namespace bascule::bench {

absl::Status run_many_tensors(Context& context) {
  constexpr std::uint64_t kTensors = 10'000, kTensorBytes = 1024;
  return measure_sends(
      context, "many_tensors",
      {.rig = {.model = {.bytes = kTensors * kTensorBytes, .tensors = kTensors, .kind = ModelShape::Kind::kEqual},
               .workers = context.options.workers},
       .repeat = context.options.small_repeat()});
}

}  // namespace bascule::bench
