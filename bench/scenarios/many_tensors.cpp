// many_tensors: a send of 10,000 tensors of 1 KiB (on a GPU, 64 KiB), compared with one flat copy of their bytes.
#include <bascule/bench/send_case.h>

namespace bascule::bench {

absl::Status run_many_tensors(Context& context) {
  constexpr std::uint64_t kTensors = 10'000;
  const std::uint64_t tensor_bytes = context.gpu ? 64 << 10 : 1 << 10;
  return measure_sends(
      context, "many_tensors",
      {.rig = {.model = {.bytes = kTensors * tensor_bytes, .tensors = kTensors, .kind = ModelShape::Kind::kEqual},
               .workers = context.options.workers},
       .repeat = context.options.small_repeat()});
}

}  // namespace bascule::bench
