#include <bascule/trainer_ref/program/axolotl_keys.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kOff = R"({"false": null})";
constexpr std::string_view kOne = R"({"1": null, "1.0": null})";
constexpr std::string_view kOfVllm = "write it in \"vllm\", without vllm_";
constexpr std::string_view kLoss = "the loss has no such term; leave it out";

constexpr AxolotlKey kTrl[] = {
    {.name = "beta", .flag = "beta"},
    {.name = "max_completion_length", .flag = "max-tokens"},
    {.name = "num_generations", .flag = "group-size"},
    {.name = "temperature", .flag = "temperature"},
    {.name = "top_p", .flag = "top-p"},
    {.name = "min_p", .flag = "min-p"},
    {.name = "num_iterations", .flag = "num-iterations"},
    {.name = "loss_type", .flag = "loss"},
    {.name = "importance_sampling_level", .flag = "importance-level"},
    {.name = "off_policy_mask_threshold", .flag = "off-policy-mask"},
    {.name = "num_completions_to_print", .flag = "show"},
    {.name = "vllm_sync_interval", .flag = "sync-every"},
    {.name = "scale_rewards",
     .flag = "scale-rewards",
     .values = R"({"true": true, "false": false, "group": true, "none": false})",
     .advice = "advantages are divided by the deviation of their group or not at all; write true or false"},
    {.name = "use_vllm",
     .flag = "engines",
     .values = R"({"true": null, "false": ["none"]})",
     .advice = "write true, for engines, or false, and the trainer generates"},
    {.name = "vllm_mode",
     .flag = "spawn-engines",
     .values = R"({"server": null, "colocate": 1})",
     .advice = "write server, for engines that run already, or colocate, and the trainer starts one"},
    {.name = "vllm_enable_sleep_mode",
     .flag = "colocate",
     .values = R"({"true": true, "false": null})",
     .advice = "write true or false"},
    {.name = "vllm_lora_sync",
     .flag = "lora-sync",
     .values = R"({"true": "adapters", "false": "merged"})",
     .advice = "write true or false"},
    {.name = "vllm_importance_sampling_mode",
     .values = R"({"token_truncate": null})",
     .advice = "importance weights are per token, and truncated; write token_truncate"},
    {.name = "multi_objective_aggregation",
     .values = R"({"sum_then_normalize": null})",
     .advice = "rewards are added before they are compared; write sum_then_normalize"},
    {.name = "generation_batch_size",
     .advice = "write prompts-per-step, which is this divided by num_generations, beside the section"},
    {.name = "mask_truncated_completions",
     .values = kOff,
     .advice = "completions that were cut off are learned from; write false, and overlong-buffer beside the section, "
               "which lowers their reward"},
    {.name = "repetition_penalty",
     .values = kOne,
     .advice = "rollouts are sampled without a penalty, since the loss computes the probabilities of the model alone; "
               "leave it out"},
    {.name = "generation_kwargs",
     .values = R"({"{}": null})",
     .advice = "write temperature, top_p, top_k and min_p in this section; rollouts have no other sampling parameters"},
    {.name = "sync_ref_model",
     .values = kOff,
     .advice = "the reference is the model that the run began with; write false"},
    {.name = "use_bias_correction_kl", .values = kOff, .advice = kLoss},
    {.name = "vllm_guided_decoding_regex", .advice = "rollouts are not guided by a grammar; leave it out"},
    {.name = "rollout_func",
     .advice = "it is a Python function; write the environment for Atropos, and rollouts: atropos:http://HOST:PORT "
               "beside the section"},
    {.name = "replay_buffer_size",
     .values = R"({"0": null})",
     .advice = "groups are not replayed; write 0, and dynamic-sampling beside the section, which replaces flat groups"},
    {.name = "reroll_start_fraction",
     .values = kOne,
     .advice =
         "problems are not asked again; write 1, and dynamic-sampling beside the section, which replaces flat groups"},
    {.name = "vllm_device", .advice = kOfVllm},
    {.name = "vllm_dtype", .advice = kOfVllm},
    {.name = "vllm_enable_prefix_caching", .advice = kOfVllm},
    {.name = "vllm_gpu_memory_utilization", .advice = kOfVllm},
    {.name = "vllm_max_model_len", .advice = kOfVllm},
    {.name = "vllm_max_model_length", .advice = "write max_model_len in \"vllm\""},
    {.name = "vllm_tensor_parallel_size", .advice = kOfVllm},
    {.name = "log_completions"},
    {.name = "ref_model_mixup_alpha"},
    {.name = "ref_model_sync_steps"},
    {.name = "replay_recompute_logps"},
    {.name = "reroll_max_groups"},
    {.name = "reward_num_workers"},
    {.name = "skip_zero_advantage_batches"},
    {.name = "streaming_min_groups"},
    {.name = "streaming_partial_batch"},
    {.name = "use_data_producer"},
    {.name = "use_liger_loss"},
};

constexpr AxolotlKey kVllm[] = {
    {.name = "device", .flag = "device"},
    {.name = "gpu_memory_utilization", .flag = "gpu-memory-utilization"},
    {.name = "max_model_len", .flag = "max-model-len"},
    {.name = "dtype",
     .flag = "dtype",
     .values = R"({"auto": null, "float32": "f32", "float": "f32", "f32": "f32", "bfloat16": "bf16", "bf16": "bf16"})",
     .advice = "write float32 or bfloat16"},
    {.name = "enforce_eager",
     .flag = "graphs",
     .values = R"({"true": "off", "false": null})",
     .advice = "write true or false"},
    {.name = "tensor_parallel_size",
     .values = kOne,
     .advice = "an engine computes on one device; write 1, and start several engines"},
    {.name = "data_parallel_size",
     .values = kOne,
     .advice = "an engine is one process; write 1, and start several engines, as by spawn-engines: 2"},
    {.name = "enable_reasoning",
     .values = kOff,
     .advice = "answers are not split into reasoning and text; write false"},
    {.name = "reasoning_parser",
     .values = R"({"": null})",
     .advice = "answers are not split into reasoning and text; leave it out"},
    {.name = "enable_prefix_caching"},  // the engine always keeps prefixes
    {.name = "serve_module"},
    {.name = "worker_extension_cls"},
};

constexpr std::string_view kNotLogged =
    "leave it out: `python -m bascule tensorboard` follows the run's "
    "metrics.jsonl";
constexpr std::string_view kOneProcess = "leave it out: the trainer is one process on one device";
constexpr std::string_view kOfModel = "leave it out: the folder of the model says it";
constexpr std::string_view kPacked = "leave it out: rows are always packed";
constexpr std::string_view kNotQuantized = "leave it out: the model is held in train-dtype";
constexpr std::string_view kAttention = "leave it out: there is one attention per device";
constexpr std::string_view kHeldOut = "write eval-data, a file; without it one in ten problems is held out";

constexpr AxolotlHint kHints[] = {
    {"base_model", "write model, a folder"},
    {"output_dir", "write out"},
    {"rl", "leave it out: the trainer does GRPO"},
    {"datasets", "write task: data, and data, a file of JSON lines"},
    {"test_datasets", kHeldOut},
    {"val_set_size", kHeldOut},
    {"chat_template", "write chat: true, for the model's own template"},
    {"default_system_message", "write system-prompt, with chat: true"},
    {"max_steps", "write steps"},
    {"num_epochs", "write epochs"},
    {"micro_batch_size", "write micro-batch; prompts-per-step times group-size completions make a step"},
    {"gradient_accumulation_steps",
     "leave it out: a step's completions go through the model in parts of micro-batch, and prompts-per-step says how "
     "many there are"},
    {"sequence_len",
     "write max-tokens, of a completion, and max_model_len in \"vllm\", of a prompt with its completion"},
    {"optimizer", "leave it out: it is AdamW"},
    {"lr_scheduler", "write lr-schedule"},
    {"cosine_min_lr_ratio", "write min-learning-rate"},
    {"warmup_ratio", "write warmup-steps"},
    {"bf16", "write train-dtype: bf16"},
    {"fp16", "write train-dtype: f32 or bf16"},
    {"load_in_8bit", kNotQuantized},
    {"load_in_4bit", kNotQuantized},
    {"lora_r", "write lora-rank"},
    {"lora_target_modules", "write lora-targets, as q_proj,v_proj"},
    {"lora_target_linear", "write lora-targets: all-linear"},
    {"lora_model_dir", "write adapter"},
    {"peft_use_rslora", "write lora-rslora"},
    {"merge_lora", "run bascule-train --merge"},
    {"eval_steps", "write eval-every"},
    {"save_steps", "write save-every"},
    {"resume_from_checkpoint", "write resume"},
    {"rl_beta", "write beta"},
    {"logging_steps", "leave it out: each step is logged"},
    {"use_tensorboard", kNotLogged},
    {"wandb_project", kNotLogged},
    {"wandb_name", kNotLogged},
    {"deepspeed", kOneProcess},
    {"fsdp", kOneProcess},
    {"fsdp_config", kOneProcess},
    {"model_type", kOfModel},
    {"tokenizer_type", kOfModel},
    {"special_tokens", kOfModel},
    {"trust_remote_code", kOfModel},
    {"sample_packing", kPacked},
    {"pad_to_sequence_len", kPacked},
    {"attn_implementation", kAttention},
    {"flash_attention", kAttention},
    {"dataset_prepared_path", "leave it out: data is read at the start"},
    {"skip_prepare_dataset", "leave it out: data is read at the start"},
};

}  // namespace

std::span<const AxolotlKey> trl_keys() { return kTrl; }
std::span<const AxolotlKey> vllm_keys() { return kVllm; }
std::span<const AxolotlHint> axolotl_hints() { return kHints; }

}  // namespace bascule::ref
