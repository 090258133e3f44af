// Feeds what comes from outside to the trainer's rewards. The first byte chooses:
//
//   0  a line of a reward program     each completion has a reward in range, or the line is refused
//   1  the list of --reward           is parsed or refused
//   2  a completion, a zero byte and an answer column, for the comparison of mathematics
//   3  a stream of bytes              splits into the same lines however it is cut
#include <cmath>
#include <limits>

#include <bascule/trainer_ref/grpo/process/line_splitter.h>
#include <bascule/trainer_ref/grpo/reward/math_answer.h>
#include <bascule/trainer_ref/grpo/reward/math_text.h>
#include <bascule/trainer_ref/grpo/reward/reward_answer.h>
#include <bascule/trainer_ref/grpo/reward/reward_list.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

void read_answer(Input input) {
  const std::size_t count = input.number(1) % 4;
  const std::string_view line = input.rest();
  ref::is_stray_line(line, 7);
  require(ref::shown_answer(line).size() <= 2048, "a message shows little of a long line");
  const auto answer = ref::read_reward_answer(line, 7, count);
  if (!answer.ok()) return require_refusal(answer.status());
  require(answer->rewards.size() == count, "each completion has a reward");
  require(answer->refused <= count, "at most all of them are refused");
  for (const double reward : answer->rewards)
    require(std::isnan(reward) || std::abs(reward) <= ref::kLargestReward, "a reward is in its range");
}

void read_list(Input input) {
  const auto specs = ref::parse_rewards(input.rest());
  if (!specs.ok()) return require_refusal(specs.status());
  for (const ref::RewardSpec& spec : *specs) {
    require(std::abs(spec.weight) <= ref::kLargestReward, "a weight is in its range");
    const int kinds = (spec.function != nullptr ? 1 : 0) + (spec.command.empty() ? 0 : 1) + (spec.url.empty() ? 0 : 1);
    require(kinds == 1, "a reward is a function, a program or a server");
  }
}

void compare_answers(Input input) {
  const std::string_view completion = input.text(), column = input.rest();
  const ref::MathAnswer expected = ref::expected_math_answer(column);
  ref::has_math_answer(completion, expected);
  const ref::MathAnswer read = ref::read_math_answer(completion);
  require(read.is_number || !read.value, "only a number has a value");
  require(ref::plain_math(completion).size() <= 8 * completion.size() + 8, "a plain text is not much longer");
}

void split_lines(Input input) {
  const std::size_t piece = 1 + input.number(2);
  const std::string_view bytes = input.rest();
  ref::LineSplitter whole, cut;
  std::vector<std::string> lines = whole.add(bytes), same;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    for (std::string& line : cut.add(bytes.substr(at, piece))) same.push_back(std::move(line));
  lines.push_back(whole.finish()), same.push_back(cut.finish());
  require(lines == same, "a stream has the same lines however it is cut");
  for (const std::string& line : lines) require(line.size() <= ref::LineSplitter::kLongest, "lines are bounded");
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bascule::fuzz::Input input(data, size);
  switch (input.number(1) % 4) {
    case 0: bascule::fuzz::read_answer(input); break;
    case 1: bascule::fuzz::read_list(input); break;
    case 2: bascule::fuzz::compare_answers(input); break;
    default: bascule::fuzz::split_lines(input); break;
  }
  return 0;
}
