// The flags of how the trainer computes: --train-dtype, --gradient-checkpointing, --logit-chunk.
#include <string>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/options.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(
    std::string, train_dtype, "auto",
    "Of activations and matrix products in training: f32, bf16, or auto (bf16 on a GPU, f32 on the CPU). Weights, "
    "moments, gradients and losses are f32 in either case");
ABSL_FLAG(bool, gradient_checkpointing, false,
          "Keep of each layer only its input, and compute the layer once more in the backward pass: a fraction of the "
          "memory for a third more time");
ABSL_FLAG(int64_t, logit_chunk, 0,
          "Completion tokens whose logits over the vocabulary lie in memory together; 0: as many as take 320 MiB");

namespace bascule::ref {

absl::StatusOr<ComputeOptions> compute_from_flags(at::Device device) {
  const std::string dtype = absl::GetFlag(FLAGS_train_dtype);
  const std::int64_t chunk = absl::GetFlag(FLAGS_logit_chunk);
  FlagChecks checks;
  checks.one_of("train-dtype", dtype, {"auto", "f32", "bf16"})
      .between<std::int64_t>("logit-chunk", chunk, 0, std::int64_t{1} << 20, 1024);
  BASCULE_TRY(checks.status());
  const bool narrow = dtype == "bf16" || (dtype == "auto" && device.is_cuda());
  return ComputeOptions{.dtype = narrow ? at::kBFloat16 : at::kFloat,
                        .checkpoints_layers = absl::GetFlag(FLAGS_gradient_checkpointing),
                        .logit_chunk = chunk};
}

}  // namespace bascule::ref
