// bascule-bench-train: the time of an update of the reference trainer, compared with what the machine could do.
#include <ATen/Parallel.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include <bascule/bench/statistics.h>
#include <bascule/trainer_ref/bench/engine/step_bench.h>
#include <bascule/trainer_ref/bench/train/update_bench.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/status.h>

ABSL_FLAG(std::string, model, "trainer_ref/bench/engine/qwen3-0.6b",
          "A folder with a config.json; its weights are not read.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda:N, or auto.");
ABSL_FLAG(std::string, train_dtype, "bf16", "As bascule-train's: f32 or bf16.");
ABSL_FLAG(bool, checkpointing, true, "As bascule-train's --gradient-checkpointing.");
ABSL_FLAG(int64_t, logit_chunk, 0, "As bascule-train's.");
ABSL_FLAG(int64_t, micro_batch_tokens, 16384, "As bascule-train's.");
ABSL_FLAG(int64_t, lora_rank, 0, "As bascule-train's, for all linear modules; 0: all weights are trained.");
ABSL_FLAG(int64_t, rows, 64, "Rows of an update.");
ABSL_FLAG(int64_t, row_tokens, 1024, "Tokens of each row: a prompt and a completion.");
ABSL_FLAG(int64_t, prompt_tokens, 256, "Of these, tokens of the prompt.");
ABSL_FLAG(int, warm_ups, 2, "Updates before those that count.");
ABSL_FLAG(int, repeat, 5, "Updates that count.");
ABSL_FLAG(int, threads, 0, "Threads that compute on a CPU; 0: one per core.");
ABSL_FLAG(std::string, json, "", "A file for all figures, as JSON.");

namespace bascule::bench {
namespace {

const ProgramInfo& program() {
  static const ProgramInfo info{
      .name = "bascule-bench-train",
      .summary =
          "measures updates of the reference trainer, with random weights of a model's shape and rows of random\n"
          "tokens. Its limit is a large matrix product's rate, measured first on the same device.\n"
          "trainer_ref/bench/train/update.py does the same in PyTorch."};
  return info;
}

absl::StatusOr<ref::TrialShape> shape_from_flags() {
  const std::int64_t row = absl::GetFlag(FLAGS_row_tokens);
  FlagChecks checks;
  checks.one_of("train-dtype", absl::GetFlag(FLAGS_train_dtype), {"f32", "bf16"})
      .between<std::int64_t>("logit-chunk", absl::GetFlag(FLAGS_logit_chunk), 0, 1 << 20, 1024)
      .at_least<std::int64_t>("micro-batch-tokens", absl::GetFlag(FLAGS_micro_batch_tokens), 0)
      .between<std::int64_t>("lora-rank", absl::GetFlag(FLAGS_lora_rank), 0, 512, 16)
      .between<std::int64_t>("rows", absl::GetFlag(FLAGS_rows), 1, 1 << 20)
      .between<std::int64_t>("row-tokens", row, 2, 1 << 20)
      .between<std::int64_t>("prompt-tokens", absl::GetFlag(FLAGS_prompt_tokens), 1, row - 1)
      .between("warm-ups", absl::GetFlag(FLAGS_warm_ups), 0, 1 << 20)
      .between("repeat", absl::GetFlag(FLAGS_repeat), 1, 1 << 20)
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024);
  BASCULE_TRY(checks.status());
  ref::TrialShape shape;
  BASCULE_ASSIGN(shape.device, ref::open_torch_device(absl::GetFlag(FLAGS_device)));
  const std::string folder = absl::GetFlag(FLAGS_model);
  absl::StatusOr<ref::ModelConfig> config = ref::read_config(folder);
  BASCULE_TRY(
      of_flag(config.status(), "model", folder, "give a folder with a config.json, as --model=trainer_ref/demo"));
  shape.config = *std::move(config);
  shape.compute = {.dtype = absl::GetFlag(FLAGS_train_dtype) == "f32" ? at::kFloat : at::kBFloat16,
                   .checkpoints_layers = absl::GetFlag(FLAGS_checkpointing),
                   .logit_chunk = absl::GetFlag(FLAGS_logit_chunk)};
  if (const std::int64_t rank = absl::GetFlag(FLAGS_lora_rank); rank > 0) {
    BASCULE_ASSIGN(ref::LoraConfig lora,
                   ref::new_lora_config({.rank = rank, .alpha = 2.0 * static_cast<double>(rank)}));
    BASCULE_ASSIGN(shape.adapter, ref::Adapter::make(shape.config, std::move(lora), /*seed=*/1));
  }
  shape.rows = absl::GetFlag(FLAGS_rows);
  shape.row_tokens = row;
  shape.prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  shape.update.micro_batch = static_cast<std::size_t>(shape.rows);
  shape.update.micro_batch_tokens = absl::GetFlag(FLAGS_micro_batch_tokens);
  shape.update.loss.max_tokens = row - shape.prompt_tokens;
  return shape;
}

absl::Status measure(const ref::TrialShape& shape) {
  const std::string file = absl::GetFlag(FLAGS_json);
  if (!file.empty()) BASCULE_TRY(check_output(file));  // before a minute of work
  if (const int threads = absl::GetFlag(FLAGS_threads); threads > 0) at::set_num_threads(threads);
  const Rates rates =
      measure_rates(ref::Place::on(shape.device), shape.compute.dtype == at::kFloat ? DType::kF32 : DType::kBF16);
  const ref::MemoryPlan plan = plan_of(shape);
  BASCULE_ASSIGN(const ref::TrialTimes times,
                 ref::try_updates(shape, absl::GetFlag(FLAGS_warm_ups), absl::GetFlag(FLAGS_repeat)));
  const std::optional<std::int64_t> log_probs = log_probs_bytes(shape);
  const double median = quantile(times.seconds, 0.5);
  const double tokens = static_cast<double>(shape.rows * shape.row_tokens), operations = operations_of(shape);
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };

  absl::PrintF("%s, %s: a matrix product computes %.3g Tflop/s\n", shape.device.str(), absl::GetFlag(FLAGS_train_dtype),
               rates.operations_per_second / 1e12);
  absl::PrintF(
      "an update of %d rows of %d tokens: %.4g s, %.0f tokens/s, %.3g Tflop/s, %.1f %% of the product's rate\n",
      shape.rows, shape.row_tokens, median, tokens / median, operations / median / 1e12,
      100 * operations / median / rates.operations_per_second);
  absl::PrintF("memory, planned: %s\n", ref::to_string(plan));
  if (times.peak)
    absl::PrintF("memory, measured: %.2f GiB at the peak, %.2f GiB with what LibTorch keeps\n",
                 gib(times.peak->allocated_bytes), gib(times.peak->kept_bytes));
  if (log_probs) absl::PrintF("log-probabilities of all rows: %.2f GiB\n", gib(*log_probs));

  if (file.empty()) return absl::OkStatus();
  nlohmann::json found{{"device", shape.device.str()},
                       {"seconds", times.seconds},
                       {"tokens", tokens},
                       {"operations", operations},
                       {"operations_per_second", rates.operations_per_second},
                       {"planned_bytes", plan.peak_bytes()}};
  if (times.peak) {  // what was not measured is left out
    found["peak_bytes"] = times.peak->allocated_bytes;
    found["kept_bytes"] = times.peak->kept_bytes;
  }
  if (log_probs) found["log_probs_bytes"] = *log_probs;
  return write_output(file, cat(found.dump(1), "\n"));
}

}  // namespace
}  // namespace bascule::bench

int main(int argc, char** argv) {
  using namespace bascule;
  parse_flags_or_exit(bench::program(), argc, argv);
  const absl::StatusOr<ref::TrialShape> shape = bench::shape_from_flags();
  if (!shape.ok()) refuse(bench::program(), shape.status());
  const absl::Status status = bench::measure(*shape);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-bench-train: %s\n", std::string(message_of(status)).c_str());
  return 1;
}
