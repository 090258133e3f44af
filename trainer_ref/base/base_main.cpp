// bascule-base: holds a base, so that it lives while the trainers and engines that map it come and go.
#include <unistd.h>

#include <cstdio>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/model/base_weights.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

ABSL_FLAG(std::string, model, "", "Folder of a Hugging Face checkpoint: config.json, *.safetensors");
ABSL_FLAG(std::string, base, "",
          "The endpoint of the base, as shm:///run/user/1000/grpo/base, or cuda-ipc:///… with --device=cuda");
ABSL_FLAG(std::string, dtype, "bf16", "Type of the weights: f32 or bf16; trainer and engines must have the same");
ABSL_FLAG(std::string, device, "cpu", "Where the base lies: cpu, or cuda:N");
ABSL_FLAG(int64_t, seed, -1,
          "For measurements, with a --model folder that has no weights: draw random ones from this seed. Trainers and "
          "engines with such a folder join whatever base is there");

namespace bascule::ref {
namespace {

const ProgramInfo& program() {
  static const ProgramInfo info{
      .name = "bascule-base",
      .summary =
          "keeps a model's frozen weights in one copy of memory, which trainers of adapters and their engines map\n"
          "(--lora-base, --base; docs/guide/shared-base.md). Runs until a signal ends it. The base lives on while\n"
          "another process has it open.",
      .section = "base",
      .companions = {}};
  return info;
}

absl::Status check_flags() {
  FlagChecks checks;
  checks.not_empty("model", absl::GetFlag(FLAGS_model), "the folder of a checkpoint", "trainer_ref/demo")
      .not_empty("base", absl::GetFlag(FLAGS_base), "an endpoint", "shm:///run/user/1000/grpo/base")
      .one_of("dtype", absl::GetFlag(FLAGS_dtype), {"f32", "bf16"})
      .at_least<std::int64_t>("seed", absl::GetFlag(FLAGS_seed), -1);
  return checks.status();
}

absl::Status hold() {
  const std::string folder = absl::GetFlag(FLAGS_model), endpoint = absl::GetFlag(FLAGS_base);
  absl::StatusOr<ModelConfig> config = read_config(folder);
  BASCULE_TRY(of_flag(config.status(), "model", folder, "give the folder of a checkpoint"));
  BASCULE_ASSIGN(const c10::Device device, open_torch_device(absl::GetFlag(FLAGS_device)));
  BaseWeightsOptions options{
      .endpoint = endpoint,
      .name = "bascule-base",
      .folder = folder,
      .dtype = absl::GetFlag(FLAGS_dtype) == "f32" ? DType::kF32 : DType::kBF16,
      .device = device,
      .log = [](std::string_view line) { std::fprintf(stderr, "bascule-base: %s\n", std::string(line).c_str()); }};
  if (const std::int64_t seed = absl::GetFlag(FLAGS_seed); seed >= 0) options.seed = static_cast<std::uint64_t>(seed);
  absl::StatusOr<BaseWeights> base = open_base_weights(*config, options);
  BASCULE_TRY(annotate(base.status(), cat("--base=", endpoint)));
  BASCULE_TRY(print(cat(base->made_here ? "made" : "joined", " the base at ", endpoint, "\n")));
  while (true) ::pause();  // a signal ends the process, and others take over
}

}  // namespace
}  // namespace bascule::ref

int main(int argc, char** argv) {
  using namespace bascule;
  let_writes_fail();
  parse_flags_or_exit(ref::program(), argc, argv);
  if (const absl::Status flags = ref::check_flags(); !flags.ok()) refuse(ref::program(), flags);
  const absl::Status status = ref::hold();
  std::fprintf(stderr, "bascule-base: %s\n", std::string(message_of(status)).c_str());
  return 1;
}
