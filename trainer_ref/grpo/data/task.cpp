#include <bascule/trainer_ref/grpo/data/task.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

std::uint64_t hash_of(const std::string& text) {  // FNV-1a, stirred: the same on every machine
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix(hash);
}

std::string two_digits(int number) {
  return {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10)};
}

// Problems with the same key are the same.
std::string key_of(const Problem& problem) {
  std::string key = problem.prompt;
  if (!problem.messages.is_null()) key += nlohmann::json(problem.messages).dump();  // in any order of keys
  if (!problem.prompt_token_ids.empty()) key += nlohmann::json(problem.prompt_token_ids).dump();
  return key;
}

}  // namespace

absl::StatusOr<Task> split(std::vector<Problem> problems) {
  std::vector<std::pair<std::uint64_t, Problem>> hashed;
  hashed.reserve(problems.size());
  for (Problem& problem : problems) hashed.emplace_back(hash_of(key_of(problem)), std::move(problem));
  std::stable_sort(hashed.begin(), hashed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::size_t held_out = (hashed.size() + 9) / 10;
  while (held_out < hashed.size() && held_out > 0 && hashed[held_out].first == hashed[held_out - 1].first)
    ++held_out;  // the same prompt again
  if (held_out == hashed.size())
    return invalid_argument("found ", hashed.size(), " problems of fewer than two different prompts; expected more, ",
                            "since one in ten is held out for evaluation");
  Task task;
  for (std::size_t i = 0; i < hashed.size(); ++i)
    (i < held_out ? task.held_out : task.train).push_back(std::move(hashed[i].second));
  return task;
}

absl::StatusOr<Task> arithmetic_task(int operands) {
  if (operands < 2 || operands > 50)
    return invalid_argument("operands below ", operands, ": expected 2 to 50, so that a sum has two digits");
  std::vector<Problem> problems;
  for (int a = 0; a < operands; ++a)
    for (int b = 0; b < operands; ++b) {
      std::string answer = two_digits(a + b);
      std::reverse(answer.begin(), answer.end());
      problems.push_back({.prompt = cat(two_digits(a), "+", two_digits(b), "="), .answer = std::move(answer)});
    }
  return split(std::move(problems));
}

std::vector<std::size_t> prompts_of_step(std::size_t problems, std::size_t count, std::uint64_t seed,
                                         std::int64_t step) {
  std::vector<std::size_t> chosen, order;
  std::uint64_t shuffled_pass = ~std::uint64_t{0};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t position = static_cast<std::uint64_t>(step) * count + i;
    if (const std::uint64_t pass = position / problems; pass != shuffled_pass) {
      order.resize(problems);
      std::iota(order.begin(), order.end(), std::size_t{0});
      shuffle(order, Random(seed, pass));
      shuffled_pass = pass;
    }
    chosen.push_back(order[position % problems]);
  }
  return chosen;
}

std::int64_t steps_of_epochs(double epochs, std::size_t problems, std::size_t prompts_per_step) {
  const double steps = std::ceil(epochs * static_cast<double>(problems) / static_cast<double>(prompts_per_step));
  return std::max<std::int64_t>(1, std::llround(steps));
}

}  // namespace bascule::ref
