#include <bascule/trainer_ref/grpo/data/task.h>

#include <gmock/gmock.h>

#include <numeric>
#include <set>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

TEST(Arithmetic, WritesOperandsWithTwoDigitsAndTheSumInReverse) {
  const absl::StatusOr<Task> task = arithmetic_task(50);
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(task->train.size(), 2250);
  EXPECT_EQ(task->held_out.size(), 250);
  std::set<std::string> prompts;
  for (const std::vector<Problem>* side : {&task->train, &task->held_out})
    for (const Problem& problem : *side) {
      ASSERT_EQ(problem.prompt.size(), 6) << problem.prompt;
      ASSERT_EQ(problem.answer.size(), 2) << problem.answer;
      const int sum = std::stoi(problem.prompt.substr(0, 2)) + std::stoi(problem.prompt.substr(3, 2));
      EXPECT_EQ(std::stoi(std::string{problem.answer[1], problem.answer[0]}), sum) << problem.prompt;
      prompts.insert(problem.prompt);
    }
  EXPECT_EQ(prompts.size(), 2500) << "no problem occurs twice, or on both sides";
}

TEST(Arithmetic, RefusesSumsOfThreeDigits) {
  EXPECT_THAT(arithmetic_task(51).status().message(), HasSubstr("expected 2 to 50"));
}

TEST(Split, PutsTheSamePromptOnOneSide) {
  std::vector<Problem> problems;
  for (int i = 0; i < 60; ++i) problems.push_back({.prompt = std::to_string(i / 3), .answer = "x"});
  const absl::StatusOr<Task> task = split(problems);
  ASSERT_TRUE(task.ok()) << task.status();
  std::set<std::string> train, held_out;
  for (const Problem& problem : task->train) train.insert(problem.prompt);
  for (const Problem& problem : task->held_out) held_out.insert(problem.prompt);
  EXPECT_EQ(train.size() + held_out.size(), 20);
  EXPECT_GE(task->held_out.size(), 6);
}

TEST(Split, NeedsTwoDifferentPrompts) {
  EXPECT_THAT(split({{.prompt = "a"}, {.prompt = "a"}}).status().message(), HasSubstr("two different prompts"));
  EXPECT_THAT(split({}).status().message(), HasSubstr("two different prompts"));
}

TEST(Split, PromptsOfMessagesAndTokenIdsDifferByWhatTheyHold) {
  const nlohmann::json hello = {{{"role", "user"}, {"content", "hello"}}},
                       bye = {{{"role", "user"}, {"content", "bye"}}};
  EXPECT_TRUE(split({{.messages = hello}, {.messages = bye}}).ok());
  EXPECT_FALSE(split({{.messages = hello}, {.messages = hello}}).ok());
  EXPECT_TRUE(split({{.prompt_token_ids = {1, 2}}, {.prompt_token_ids = {1, 3}}}).ok());
  EXPECT_FALSE(split({{.prompt_token_ids = {1, 2}}, {.prompt_token_ids = {1, 2}}}).ok());
}

TEST(PromptOrder, AsksEveryProblemOnceAPass) {
  std::vector<std::size_t> asked;
  for (int step = 0; step < 5; ++step)
    for (const std::size_t problem : prompts_of_step(10, 4, 7, step)) asked.push_back(problem);
  std::vector<std::size_t> all(10);
  std::iota(all.begin(), all.end(), std::size_t{0});
  EXPECT_THAT(std::vector<std::size_t>(asked.begin(), asked.begin() + 10), ::testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(std::vector<std::size_t>(asked.begin() + 10, asked.end()), ::testing::UnorderedElementsAreArray(all));
  EXPECT_NE(std::vector<std::size_t>(asked.begin(), asked.begin() + 10),
            std::vector<std::size_t>(asked.begin() + 10, asked.end()))
      << "each pass has its own order";
}

TEST(PromptOrder, IsAFunctionOfSeedAndStep) {
  EXPECT_EQ(prompts_of_step(1000, 32, 7, 12), prompts_of_step(1000, 32, 7, 12));
  EXPECT_NE(prompts_of_step(1000, 32, 7, 12), prompts_of_step(1000, 32, 8, 12));
  EXPECT_NE(prompts_of_step(1000, 32, 7, 12), prompts_of_step(1000, 32, 7, 13));
}

TEST(Epochs, EndWithTheStepThatAsksTheLastProblem) {
  EXPECT_EQ(steps_of_epochs(1, 10, 5), 2);
  EXPECT_EQ(steps_of_epochs(1, 11, 5), 3) << "rounded up";
  EXPECT_EQ(steps_of_epochs(3, 11, 5), 7) << "33 problems";
  EXPECT_EQ(steps_of_epochs(0.5, 10, 5), 1);
  EXPECT_EQ(steps_of_epochs(0.01, 3, 32), 1);
}

}  // namespace
}  // namespace bascule::ref
