#include <bascule/trainer_ref/grpo/learn/supervised.h>

#include <cctype>
#include <chrono>
#include <cmath>

#include <bascule/trainer_ref/grpo/run/progress.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr double kLogEverySeconds = 10;

// Owns the data to which make_batch() points.
struct SftExample {
  std::vector<std::int64_t> prompt;
  Rollout answer;
};

absl::StatusOr<SftExample> make_example(const PromptWriter& prompts, const ModelConfig& config, const Problem& problem,
                                        const std::string& answer) {
  SftExample example;
  BASCULE_ASSIGN(example.prompt, prompts.tokens_of(problem));
  BASCULE_ASSIGN(example.answer.token_ids, prompts.tokenizer().encode(answer));
  example.answer.token_ids.push_back(config.answer_end());
  return example;
}

std::vector<TrainingRow> rows_of(std::span<const SftExample> examples) {
  std::vector<TrainingRow> rows;
  for (const SftExample& example : examples) rows.push_back({&example.prompt, &example.answer});
  return rows;
}

absl::StatusOr<std::vector<SftExample>> examples_of_step(const Policy& policy, const PromptWriter& prompts,
                                                         const Task& task, const SupervisedOptions& options,
                                                         std::int64_t step) {
  Random random(options.seed, static_cast<std::uint64_t>(step));
  std::vector<SftExample> examples;
  for (const std::size_t i : prompts_of_step(task.train.size(), options.problems_per_step, options.seed, step)) {
    const Problem& problem = task.train[i];
    BASCULE_ASSIGN(SftExample example,
                   make_example(prompts, policy.config(), problem, sft_target(problem, options.label_noise, random)));
    examples.push_back(std::move(example));
  }
  return examples;
}

// Takes one optimizer step, which changes nothing if its gradients are not finite. Returns the mean loss of its tokens.
double learn(const Policy& policy, Optimizer& optimizer, std::span<const TrainingRow> rows,
             const SupervisedOptions& options) {
  double tokens = 0, loss = 0;
  for (const TrainingRow& row : rows) tokens += static_cast<double>(row.rollout->token_ids.size());
  optimizer.zero_grad();
  for (const auto& part : micro_batches_of(rows, options.micro_batch, options.micro_batch_tokens)) {
    const at::Tensor sum = -policy.log_probs(make_batch(part, policy.device()), /*temperature=*/1).sum() / tokens;
    sum.backward();
    loss += sum.item<double>();
  }
  optimizer.step(loss);
  return loss;
}

}  // namespace

absl::StatusOr<Policy> random_policy(const ModelConfig& config, std::uint64_t seed, at::Device device,
                                     const ComputeOptions& compute) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  WeightMap weights;
  for (const TensorSpec& spec : weight_specs(config, DType::kF32)) {
    at::Tensor& tensor = weights[spec.name];
    tensor = at::zeros(spec.shape);
    if (spec.name.ends_with("norm.weight"))
      tensor.fill_(1);
    else if (spec.name.ends_with(".weight"))
      tensor.normal_(0, 0.02, generator);
    tensor = tensor.to(device);
  }
  return Policy::over(config, std::move(weights), Policy::Gradients::kTracked, compute);
}

std::string with_noise(std::string_view answer, double noise, Random& random) {
  std::string result(answer);
  for (char& c : result)
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 && random.uniform() < noise)
      c = static_cast<char>('0' + random.below(10));
  return result;
}

std::string sft_target(const Problem& problem, double noise, Random& random) {
  const std::string answer = with_noise(problem.answer, noise, random);
  const auto rationale = problem.columns.find("rationale");
  if (rationale == problem.columns.end() || !rationale->is_string()) return answer;
  std::string text = rationale->get<std::string>();
  if (!text.ends_with('\n')) text += '\n';
  return cat(text, "#### ", answer);
}

absl::StatusOr<std::int64_t> check_sft_target(const PromptWriter& prompts, const ModelConfig& config,
                                              const Problem& problem, std::int64_t prompt_tokens) {
  Random no_noise(0, 0);
  const std::string text = sft_target(problem, 0, no_noise);
  const std::string shown =
      nlohmann::json(text.substr(0, 100)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.empty()) return invalid_argument("expected an answer to learn from, found none");
  const absl::StatusOr<std::vector<std::int64_t>> answer = prompts.tokenizer().encode(text);
  if (!answer.ok()) return annotate(answer.status(), cat("answer ", shown));
  const auto tokens = static_cast<std::int64_t>(answer->size()) + 1;  // with the end token
  if (prompt_tokens + tokens > config.max_position_embeddings)
    return invalid_argument("answer ", shown, ": expected at most ", config.max_position_embeddings,
                            " tokens, as many as the model has positions for, found ", prompt_tokens + tokens,
                            " with its prompt; leave it out");
  return tokens;
}

absl::Status train_supervised(Policy& policy, const PromptWriter& prompts, const Task& task,
                              const SupervisedOptions& options, const SupervisedHooks& hooks) {
  using Clock = std::chrono::steady_clock;
  Optimizer optimizer(policy.trained(), options.optimizer);
  Pace pace;
  const Clock::time_point begin = Clock::now();
  const auto seconds = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  pace.begin(0);
  double logged_at = 0, tokens = 0;  // since the last log line
  std::int64_t bad_steps = 0;        // the latest consecutive ones
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    if (hooks.stopped()) return absl::CancelledError(cat("stopped after step ", step - 1, " of ", options.steps));
    BASCULE_ASSIGN(const std::vector<SftExample> examples, examples_of_step(policy, prompts, task, options, step - 1));
    const std::vector<TrainingRow> rows = rows_of(examples);
    if (policy.draws()) at::manual_seed(mix(options.seed + static_cast<std::uint64_t>(step)));
    const std::int64_t steps_before = optimizer.steps();
    const double loss = learn(policy, optimizer, rows, options);
    bad_steps = optimizer.steps() == steps_before ? bad_steps + 1 : 0;
    if (bad_steps >= options.max_bad_steps)
      return failed_precondition("steps ", step - bad_steps + 1, " to ", step,
                                 ": expected a finite loss and finite gradients, found none; look at the weights of "
                                 "--model and the answers, give a smaller --learning-rate, or a larger "
                                 "--max-bad-steps than ",
                                 options.max_bad_steps);
    for (const TrainingRow& row : rows) tokens += static_cast<double>(row.tokens());
    const double now = seconds();
    pace.step_ended(now);
    if (step > 1 && step < options.steps && now - logged_at < kLogEverySeconds) continue;
    hooks.log(supervised_line(step, options.steps, loss, tokens / (now - logged_at),
                              pace.seconds_left(options.steps - step)));
    logged_at = now;
    tokens = 0;
    if (step == 1) hooks.after_first_step();
  }
  return absl::OkStatus();
}

absl::StatusOr<double> greedy_accuracy(const Policy& policy, const PromptWriter& prompts,
                                       std::span<const Problem> problems, std::size_t micro_batch,
                                       std::int64_t micro_batch_tokens, const std::function<bool()>& stopped) {
  std::vector<SftExample> examples;
  Random no_noise(0, 0);
  for (const Problem& problem : problems) {
    BASCULE_ASSIGN(SftExample example,
                   make_example(prompts, policy.config(), problem, sft_target(problem, 0, no_noise)));
    examples.push_back(std::move(example));
  }
  double wrong = 0;
  const std::vector<TrainingRow> rows = rows_of(examples);
  for (const auto& part : micro_batches_of(rows, micro_batch, micro_batch_tokens)) {
    if (stopped()) return absl::CancelledError("stopped in the evaluation");
    const Batch batch = make_batch(part, policy.device());
    const at::Tensor misses = policy.likeliest(batch) != batch.targets;  // [M]
    const at::Tensor of_rows = at::zeros_like(batch.advantages).index_add(0, batch.row_of, misses.to(at::kFloat));
    wrong += (of_rows > 0).sum().item<double>();
  }
  return 1 - wrong / static_cast<double>(problems.size());
}

}  // namespace bascule::ref
