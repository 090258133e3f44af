// send and send_cast: the time of a send of a whole model, until the last ack, compared with a memcpy that moves as
// many bytes.
#include <bascule/bench/send_case.h>

namespace bascule::bench {
namespace {

WorkerMode reading(const Options& options) { return options.spin ? WorkerMode::kSpin : WorkerMode::kIdle; }

}  // namespace

absl::Status run_send(Context& context) {
  const Options& options = context.options;
  return measure_sends(context, "send",
                       {.rig = {.model = {.bytes = options.bytes, .tensors = options.tensors},
                                .workers = options.workers,
                                .mode = reading(options)},
                        .repeat = options.repeat,
                        .after_pack = context.gpu != nullptr});
}

// Within one memory a weight is read as 4 bytes and written as 2. A copy of 3 bytes also moves 6, so the baseline
// copies 1.5 times the slot's bytes. Over a link to or from a GPU only the slot's bytes move.
absl::Status run_send_cast(Context& context) {
  const Options& options = context.options;
  const bool one_memory = context.device == context.worker_device && (!context.gpu || context.slots_on_gpu);
  return measure_sends(context, "send_cast",
                       {.rig = {.model = {.bytes = 2 * options.bytes, .tensors = options.tensors, .dtype = DType::kF32},
                                .endpoint_option = "wire_dtype=bf16",
                                .workers = options.workers,
                                .mode = reading(options)},
                        .repeat = options.repeat,
                        .copied_share = one_memory ? 1.5 : 1});
}

}  // namespace bascule::bench
