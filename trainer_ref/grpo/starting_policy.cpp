#include <bascule/trainer_ref/grpo/starting_policy.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/grpo/options/starting_adapter.h>
#include <bascule/trainer_ref/model/base_weights.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

namespace {

std::int64_t elements_of(const WeightMap& weights) {
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : weights) sum += tensor.numel();
  return sum;
}

// All weights, to be trained or as an adapter's base.
absl::StatusOr<Policy> own_weights(const TrainFlags& flags, const StartPoint& start,
                                   const std::function<void(std::string_view)>& log) {
  const bool resumes_all = !flags.resume.empty() && !flags.lora.on;
  const std::filesystem::path& folder = resumes_all ? flags.resume : start.model;
  absl::StatusOr<Policy> policy =
      Policy::read(folder, flags.lora.on ? Policy::Gradients::kNone : Policy::Gradients::kTracked, flags.compute.device,
                   flags.compute.options, resumes_all ? std::function<void(std::string_view)>{} : log);
  if (absl::IsNotFound(policy.status()) && flags.supervised && !flags.lora.on) {
    log("no weights in the folder of --model: starting from random ones");
    BASCULE_ASSIGN(const ModelConfig config, read_config(folder));
    policy = random_policy(config, flags.rollouts.seed, flags.compute.device, flags.compute.options);
  }
  BASCULE_TRY(of_flag(policy.status(), resumes_all ? "resume" : "model", folder.string(),
                      resumes_all ? kResumeAdvice : kModelAdvice));
  return policy;
}

// The frozen weights in the memory that other processes also map.
absl::StatusOr<Policy> shared_weights(const TrainFlags& flags, const StartPoint& start,
                                      const std::function<void(std::string_view)>& log,
                                      const std::function<bool()>& stopped) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(start.model));
  absl::StatusOr<BaseWeights> base = open_base_weights(config, {.endpoint = flags.lora.base,
                                                                .name = "trainer",
                                                                .folder = start.model,
                                                                .dtype = flags.frozen_dtype(),
                                                                .device = flags.compute.device,
                                                                .log = log,
                                                                .interrupted = stopped});
  BASCULE_TRY(annotate(base.status(), cat("--lora-base=", flags.lora.base)));
  log(cat(base->made_here ? "made" : "joined", " the base at ", flags.lora.base));
  return Policy::over(config, std::move(base->weights), Policy::Gradients::kNone, flags.compute.options);
}

}  // namespace

absl::StatusOr<Policy> starting_policy(const TrainFlags& flags, const StartPoint& start,
                                       const std::function<void(std::string_view)>& log,
                                       const std::function<bool()>& stopped) {
  absl::StatusOr<Policy> policy =
      flags.lora.base.empty() ? own_weights(flags, start, log) : shared_weights(flags, start, log, stopped);
  if (!policy.ok() || !flags.lora.on) return policy;
  BASCULE_ASSIGN(Adapter adapter, starting_adapter(flags, start.model));
  policy = policy->adapted(std::move(adapter));
  if (policy.ok())
    log(cat("training an adapter of ", policy->adapter()->modules.size(), " modules: ", elements_of(policy->trained()),
            " weights, over ", elements_of(policy->weights()), " frozen ones"));
  return policy;
}

}  // namespace bascule::ref
