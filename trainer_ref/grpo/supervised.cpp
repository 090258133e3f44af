#include <bascule/trainer_ref/grpo/supervised.h>

#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

constexpr std::chrono::seconds kLogEvery{10};

// What make_batch() points into.
struct Lesson {
  std::vector<std::int64_t> prompt;
  Rollout answer;
};

absl::StatusOr<Lesson> make_lesson(const PromptWriter& prompts, const ModelConfig& config, const Problem& problem,
                                   const std::string& answer) {
  if (config.eos_token_ids.empty())
    return invalid_argument("config.json: expected an eos_token_id, found none; answers need an end token");
  Lesson lesson;
  BASCULE_ASSIGN(lesson.prompt, prompts.tokens_of(problem));
  BASCULE_ASSIGN(lesson.answer.token_ids, prompts.tokenizer().encode(answer));
  lesson.answer.token_ids.push_back(config.eos_token_ids.front());
  return lesson;
}

// Batches of `micro_batch` lessons and a last one with the rest.
std::vector<Batch> batches_of(std::span<const Lesson> lessons, std::size_t micro_batch, at::Device device) {
  std::vector<Batch> batches;
  std::vector<TrainingRow> rows;
  for (const Lesson& lesson : lessons) {
    rows.push_back({&lesson.prompt, &lesson.answer});
    if (rows.size() < micro_batch && &lesson != &lessons.back()) continue;
    batches.push_back(make_batch(rows, device));
    rows.clear();
  }
  return batches;
}

// When a line is due, and what it says.
class Progress {
 public:
  bool is_due() const { return Clock::now() - last_ >= kLogEvery; }
  std::string line(std::int64_t step, std::int64_t steps, double loss) {
    last_ = Clock::now();
    const double seconds_a_step = std::chrono::duration<double>(last_ - begin_).count() / static_cast<double>(step);
    return absl::StrFormat("step %d/%d  loss %.4f  %.3f s a step, %.0f s left", step, steps, loss, seconds_a_step,
                           seconds_a_step * static_cast<double>(steps - step));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
};

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

std::string lesson_text(const Problem& problem, double noise, Random& random) {
  const std::string answer = with_noise(problem.answer, noise, random);
  const auto rationale = problem.columns.find("rationale");
  if (rationale == problem.columns.end() || !rationale->is_string()) return answer;
  std::string text = rationale->get<std::string>();
  if (!text.ends_with('\n')) text += '\n';
  return cat(text, "#### ", answer);
}

absl::Status train_supervised(Policy& policy, const PromptWriter& prompts, const Task& task,
                              const SupervisedOptions& options) {
  Optimizer optimizer(policy.weights(), options.optimizer);
  Progress progress;
  for (std::int64_t step = 0; step < options.steps && !options.stopped(); ++step) {
    Random random(options.seed, static_cast<std::uint64_t>(step));
    std::vector<Lesson> lessons;
    double tokens = 0;
    for (const std::size_t i : prompts_of_step(task.train.size(), options.problems_per_step, options.seed, step)) {
      const Problem& problem = task.train[i];
      BASCULE_ASSIGN(Lesson lesson,
                     make_lesson(prompts, policy.config(), problem, lesson_text(problem, options.label_noise, random)));
      tokens += static_cast<double>(lesson.answer.token_ids.size());
      lessons.push_back(std::move(lesson));
    }
    optimizer.zero_grad();
    double loss = 0;
    for (const Batch& batch : batches_of(lessons, options.micro_batch, policy.device())) {
      const at::Tensor part = -policy.log_probs(batch, /*temperature=*/1).sum() / tokens;
      part.backward();
      loss += part.item<double>();
    }
    optimizer.step(loss);
    if (progress.is_due() || step + 1 == options.steps) options.log(progress.line(step + 1, options.steps, loss));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> greedy_accuracy(const Policy& policy, const PromptWriter& prompts,
                                       std::span<const Problem> problems, std::size_t micro_batch) {
  std::vector<Lesson> lessons;
  Random no_noise(0, 0);
  for (const Problem& problem : problems) {
    BASCULE_ASSIGN(Lesson lesson, make_lesson(prompts, policy.config(), problem, lesson_text(problem, 0, no_noise)));
    lessons.push_back(std::move(lesson));
  }
  double wrong = 0;
  for (const Batch& batch : batches_of(lessons, micro_batch, policy.device())) {
    const at::Tensor misses = policy.likeliest(batch) != batch.targets;  // [M]
    const at::Tensor of_rows = at::zeros_like(batch.advantages).index_add(0, batch.row_of, misses.to(at::kFloat));
    wrong += (of_rows > 0).sum().item<double>();
  }
  return 1 - wrong / static_cast<double>(problems.size());
}

}  // namespace bascule::ref
