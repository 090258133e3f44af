#include <bascule/trainer_ref/grpo/supervised.h>

#include <cctype>
#include <cmath>
#include <cstdio>

#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kLogEvery = 100;

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

Batch batch_of(const std::vector<Lesson>& lessons, at::Device device) {
  std::vector<TrainingRow> rows;
  for (const Lesson& lesson : lessons) rows.push_back({&lesson.prompt, &lesson.answer});
  return make_batch(rows, device);
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

absl::Status train_supervised(Policy& policy, const PromptWriter& prompts, const Task& task,
                              const SupervisedOptions& options) {
  Optimizer optimizer(policy.weights(), options.optimizer);
  for (std::int64_t step = 0; step < options.steps && !options.stopped(); ++step) {
    Random random(options.seed, static_cast<std::uint64_t>(step));
    std::vector<Lesson> lessons;
    for (const std::size_t i : prompts_of_step(task.train.size(), options.problems_per_step, options.seed, step)) {
      const Problem& problem = task.train[i];
      BASCULE_ASSIGN(Lesson lesson, make_lesson(prompts, policy.config(), problem,
                                                with_noise(problem.answer, options.label_noise, random)));
      lessons.push_back(std::move(lesson));
    }
    const Batch batch = batch_of(lessons, policy.device());
    optimizer.zero_grad();
    const at::Tensor loss = -policy.log_probs(batch, /*temperature=*/1).mean();
    loss.backward();
    optimizer.step();
    if ((step + 1) % kLogEvery == 0 || step + 1 == options.steps)
      options.log(cat("step ", step + 1, "/", options.steps, "  loss ", loss.item<double>()));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> greedy_accuracy(const Policy& policy, const PromptWriter& prompts,
                                       std::span<const Problem> problems) {
  std::vector<Lesson> lessons;
  for (const Problem& problem : problems) {
    BASCULE_ASSIGN(Lesson lesson, make_lesson(prompts, policy.config(), problem, problem.answer));
    lessons.push_back(std::move(lesson));
  }
  const Batch batch = batch_of(lessons, policy.device());
  const at::Tensor wrong = policy.likeliest(batch) != batch.targets;  // [M]
  const at::Tensor wrong_in_row = at::zeros_like(batch.advantages).index_add(0, batch.row_of, wrong.to(at::kFloat));
  return (wrong_in_row == 0).to(at::kDouble).mean().item<double>();
}

}  // namespace bascule::ref
