#include <bascule/trainer_ref/grpo/options/starting_adapter.h>

#include <string>
#include <system_error>

#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<Adapter> starting_adapter(const TrainFlags& flags, const std::filesystem::path& model) {
  const LoraFlags& lora = flags.lora;
  BASCULE_ASSIGN(const ModelConfig config, read_config(model));
  if (!lora.adapter.empty()) {
    absl::StatusOr<Adapter> adapter = read_adapter(lora.adapter, config);
    BASCULE_TRY(of_flag(adapter.status(), flags.resume.empty() ? "adapter" : "resume", lora.adapter.string(),
                        "give an adapter of --model"));
    return adapter;
  }
  NewLora fresh = lora.fresh;
  std::error_code ignored;
  fresh.base_model = std::filesystem::weakly_canonical(model, ignored).string();
  absl::StatusOr<LoraConfig> made = new_lora_config(fresh);
  absl::StatusOr<Adapter> adapter =
      made.ok() ? Adapter::make(config, *std::move(made), flags.rollouts.seed) : made.status();
  if (!adapter.ok())
    return invalid_argument("--lora-targets: ", message_of(adapter.status()),
                            "; give them as --lora-targets=q_proj,v_proj");
  return adapter;
}

absl::Status check_resumed_adapter(const TrainFlags& flags) {
  const std::string resume = flags.resume.string();
  const bool is_adapter = is_adapter_folder(flags.resume);
  if (flags.lora.on && !is_adapter)
    return invalid_argument("--resume=", resume,
                            ": expected an adapter_step_N, found a checkpoint of all weights; leave "
                            "--lora-rank out, or give the folder as --model, which starts a new run");
  if (!is_adapter || flags.lora.fresh.rank == 0) return absl::OkStatus();
  absl::StatusOr<LoraConfig> found = read_lora_config(flags.resume);
  BASCULE_TRY(of_flag(found.status(), "resume", resume, kResumeAdvice));
  BASCULE_ASSIGN(const LoraConfig given, new_lora_config(flags.lora.fresh));
  for (const auto& [flag, key] : {std::pair("lora-rank", "r"),
                                  {"lora-alpha", "lora_alpha"},
                                  {"lora-rslora", "use_rslora"},
                                  {"lora-targets", "target_modules"},
                                  {"lora-dropout", "lora_dropout"}}) {
    const nlohmann::json has = found->keys.value(key, nlohmann::json()), wanted = given.keys.at(key);
    if (has != wanted)
      return invalid_argument("--", flag, ": the adapter in ", resume, " has ", has.dump(), ", found ", wanted.dump(),
                              "; a resumed adapter keeps its config, so leave it out or give what it has");
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref
