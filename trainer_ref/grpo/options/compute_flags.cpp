// The flags of the trainer's computation: --device, --train-dtype, --gradient-checkpointing, --logit-chunk.
#include <string>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_FLAG(
    std::string, device, "cpu",
    "The device of the policy, its reference and the optimizer (see --train-dtype): cpu, cuda, cuda:N, or auto (a GPU "
    "if this build and this machine have one, else the CPU; the log says which)");
ABSL_FLAG(
    std::string, train_dtype, "auto",
    "Type of activations and matrix products in training: f32, bf16, or auto (bf16 on a GPU, f32 on the CPU). Weights, "
    "moments, gradients and losses are always f32, except the frozen weights of --lora-rank, which have this type");
ABSL_FLAG(bool, gradient_checkpointing, false,
          "Keep only each layer's input, and recompute the layer in the backward pass: takes a fraction of the memory, "
          "for a third more time");
ABSL_FLAG(int64_t, logit_chunk, 0,
          "Completion tokens whose logits over the vocabulary are in memory at once; 0: as many as take 320 MiB");

namespace bascule::ref {

namespace {

// Opens --device, and refuses a --sync that does not reach it, before opening unless it is auto. A dry run continues if
// the GPU cannot be opened.
absl::StatusOr<ComputeFlags> open_device(const EngineFlags& engines, RunKind kind,
                                         const std::function<void(std::string_view)>& log) {
  const std::string flag = absl::GetFlag(FLAGS_device);
  const auto check = [&](bool on_host) {
    const bool needless = kind.supervised || engines.sync.empty();
    return needless ? absl::OkStatus()
                    : check_sync_of(engines.sync, on_host ? ComputesOn::kHost : ComputesOn::kGpu, engines.spawn);
  };
  if (flag != "auto") BASCULE_TRY(check(flag == "cpu"));
  const absl::StatusOr<at::Device> device = open_torch_device(flag, log);
  if (!device.ok() && !(kind.dry_run && absl::IsUnavailable(device.status()))) return device.status();
  const ComputeFlags compute{.device = device.value_or(at::Device(at::kCUDA, 0)), .is_device_open = device.ok()};
  if (flag == "auto") BASCULE_TRY(check(compute.device.is_cpu()));
  return compute;
}

}  // namespace

absl::StatusOr<ComputeFlags> parse_compute_flags(const EngineFlags& engines, RunKind kind,
                                                 const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(ComputeFlags compute, open_device(engines, kind, log));
  const std::string dtype = absl::GetFlag(FLAGS_train_dtype);
  const std::int64_t chunk = absl::GetFlag(FLAGS_logit_chunk);
  FlagChecks checks;
  checks.one_of("train-dtype", dtype, {"auto", "f32", "bf16"})
      .between<std::int64_t>("logit-chunk", chunk, 0, std::int64_t{1} << 20, 1024);
  BASCULE_TRY(checks.status());
  const bool narrow = dtype == "bf16" || (dtype == "auto" && compute.device.is_cuda());
  compute.options = {.dtype = narrow ? at::kBFloat16 : at::kFloat,
                     .checkpoints_layers = absl::GetFlag(FLAGS_gradient_checkpointing),
                     .logit_chunk = chunk};
  return compute;
}

}  // namespace bascule::ref
