// scripts/gsm8k and the proof of it without real weights, as a user runs them, with the programs of this build.
#include <regex>
#include <set>

#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Gsm8k : public Train {
 protected:
  Program script(const std::string& name, std::vector<std::string> flags) const {
    flags.insert(flags.begin(), std::string(BASCULE_SCRIPTS "/") + name);
    return Program(std::move(flags), folder_ / (name + ".log"));
  }
  static std::string programs() { return fs::path(BASCULE_TRAIN).parent_path().string(); }

  struct WordProblem {
    std::string words;  // those that neither name somebody nor what is counted, and the numbers
    int steps = 0, slips = 0;
    bool goes_on = true;  // the answer is the last step's result
  };
  static WordProblem look_at(const nlohmann::json& line) {
    WordProblem problem;
    const std::string question = line["question"], answer = line["answer"];
    const std::regex sum(R"((\d+) ([-+*]) (\d+) = (\d+))"), word("[a-z]+|\\d+");
    static const std::set<std::string> things{"pencils", "marbles", "stickers", "cards",   "shells",   "coins",
                                              "stamps",  "buttons", "books",    "cookies", "balloons", "beads"};
    for (std::sregex_iterator each(question.begin(), question.end(), word), end; each != end; ++each)
      if (!things.contains(each->str()) && (each->position() == 0 || !std::isupper(question[each->position() - 1])))
        problem.words += each->str() + ' ';
    std::string last;
    for (std::sregex_iterator each(answer.begin(), answer.end(), sum), end; each != end; ++each) {
      const int a = std::stoi((*each)[1]), b = std::stoi((*each)[3]), said = std::stoi((*each)[4]);
      const std::string sign = (*each)[2];
      ++problem.steps;
      problem.slips += said != (sign == "+" ? a + b : sign == "-" ? a - b : a * b);
      last = (*each)[4];
    }
    problem.goes_on = answer.ends_with("\n#### " + last);
    return problem;
  }
};

TEST_F(Gsm8k, WordProblemsAreRightApartAndSlipAsAsked) {
  const fs::path data = folder_ / "data";
  Program make = script("make-word-problems", {data, "--lessons", "3000", "--train", "3000", "--test", "500"});
  ASSERT_EQ(make.wait(60s), 0) << make.output();
  std::set<std::string> trained, held_out;
  for (const auto& [name, count] : {std::pair("lessons", 3000), {"train", 3000}, {"test", 500}}) {
    const auto lines = ref::read_json_lines(data / (std::string(name) + ".jsonl"));
    ASSERT_TRUE(lines.ok());
    EXPECT_EQ(lines->size(), count);
    double steps = 0, slips = 0;
    for (const nlohmann::json& line : *lines) {
      const WordProblem problem = look_at(line);
      EXPECT_GE(problem.steps, 2) << line;
      EXPECT_TRUE(problem.goes_on) << line;
      steps += problem.steps;
      slips += problem.slips;
      (std::string(name) == "test" ? held_out : trained).insert(problem.words);
    }
    EXPECT_NEAR(slips / steps, std::string(name) == "lessons" ? 0.35 : 0, 0.03) << name;
  }
  EXPECT_GT(held_out.size(), 400);
  for (const std::string& words : held_out) EXPECT_FALSE(trained.contains(words)) << words;
}

// A model and a run that are too small to learn anything: every part of the proof runs, and it says that it failed.
TEST_F(Gsm8k, TheProofRunsFromProblemsToThePageAndFailsWhereNothingWasLearnt) {
  nlohmann::json config = nlohmann::json::parse(std::ifstream(BASCULE_WORD_PROBLEMS "/config.json"));
  config.update({{"hidden_size", 32}, {"intermediate_size", 32}, {"num_hidden_layers", 1}, {"num_attention_heads", 2}});
  std::ofstream(folder_ / "config.json") << config;
  const std::vector<std::string> flags{"--out",
                                       folder_ / "out",
                                       "--bin",
                                       programs(),
                                       "--device",
                                       "cpu",
                                       "--config",
                                       folder_ / "config.json",
                                       "--lessons",
                                       "500",
                                       "--lesson-steps",
                                       "2",
                                       "--steps",
                                       "2",
                                       "--",
                                       "--prompts-per-step",
                                       "4",
                                       "--group-size",
                                       "4",
                                       "--eval-problems",
                                       "8",
                                       "--max-tokens",
                                       "8",
                                       "--threads",
                                       "1"};
  Program proof = script("prove-gsm8k", flags);
  EXPECT_EQ(proof.wait(120s), 1) << proof.output();
  EXPECT_THAT(proof.output(), HasSubstr("held-out reward rose by 0.000; expected 0.2 or more"));
  EXPECT_THAT(proof.output(), HasSubstr("before and after 2 steps"));
  EXPECT_TRUE(fs::exists(folder_ / "out/start/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "out/run/report.html"));
  EXPECT_EQ(metrics("out/run").size(), 3);
}

TEST_F(Gsm8k, RefusesWhatMakesNoSenseAndSaysWhatWould) {
  fs::create_directory(folder_ / "empty");
  const std::string model = BASCULE_DEMO_MODEL, empty = folder_ / "empty";
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{}, "as --model Qwen2.5-0.5B-Instruct"},
      {{"--model", model}, "expected a folder with train.jsonl and test.jsonl"},
      {{"--model", empty, "--data", empty}, "found no config.json in it"},
      {{"--model", model, "--data", empty}, "expected train.jsonl in it; get both from"},
      {{"--model"}, "--model needs a value"},
      {{"--modle=x"}, "unknown argument --modle"},
  };
  for (const auto& [flags, why] : bad) {
    Program run = script("gsm8k", flags);
    EXPECT_EQ(run.wait(60s), 2) << why;
    EXPECT_THAT(run.output(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace bascule::test
