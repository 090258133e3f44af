// bascule-train without engines: dry runs and supervised training.
#include <csignal>
#include <regex>
#include <sstream>

#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
namespace fs = std::filesystem;

class TrainAlone : public Train {
 protected:
  Program alone(std::vector<std::string> flags, const fs::path& model = BASCULE_DEMO_MODEL) {
    std::vector<std::string> command{BASCULE_TRAIN, "--model", model.string(), "--threads", "1"};
    command.insert(command.end(), flags.begin(), flags.end());
    return Program(std::move(command), folder_ / "alone.log");
  }
  // The output of a run that must end with `status`.
  std::string said(int status, std::vector<std::string> flags, const fs::path& model = BASCULE_DEMO_MODEL) {
    Program run = alone(std::move(flags), model);
    EXPECT_EQ(run.wait(90s), status) << run.output();
    return run.output();
  }
  fs::path model_with(const std::function<void(nlohmann::json&)>& change) {
    const fs::path model = folder_ / "model";
    fs::copy(BASCULE_DEMO_MODEL, model);
    nlohmann::json config = nlohmann::json::parse(bytes("model/config.json"));
    change(config);
    std::ofstream(model / "config.json") << config;
    fs::remove(model / "model.safetensors");
    return model;
  }
  fs::path problems(const std::string& rationale, const std::string& answer = "4") {
    const fs::path file = folder_ / "sft.jsonl";
    std::ofstream lines(file);
    for (int i = 0; i < 40; ++i) {
      nlohmann::json line{{"prompt", "2+" + std::to_string(i) + "="}, {"answer", answer}};
      if (!rationale.empty()) line["rationale"] = rationale;
      lines << line << "\n";
    }
    return file;
  }
};

class DryRun : public TrainAlone {};

TEST_F(DryRun, SaysWhatTheRunTakesAndTriesAnUpdate) {
  const std::string output = said(0, {"--dry-run", "--max-tokens", "3", "--steps", "40", "--device", "cpu"});
  EXPECT_THAT(output, AllOf(HasSubstr("micro-batches of at most 576 tokens, 192 of them of completions"),
                            HasSubstr("GiB  f32 weights"), HasSubstr("AdamW's moments"),
                            HasSubstr("in all, at the peak of an update"), HasSubstr("is free on cpu"),
                            HasSubstr("tried on cpu with random weights: "),
                            HasSubstr(" tokens per second through an update"), HasSubstr("the updates of 40 steps ")));
  EXPECT_EQ(fs::directory_iterator(folder_)->path().filename(), "alone.log") << "it leaves nothing";
}

TEST_F(DryRun, CountsTheStepsThatAResumedRunHasLeft) {
  std::ofstream(folder_ / "trainer_state.json") << R"({"step": 3, "seed": 0, "optimizer_steps": 3})";
  const auto resumed = [&](const char* steps) {
    return said(0, {"--dry-run", "--resume", folder_, "--steps", steps, "--max-tokens", "3", "--prompts-per-step", "2",
                    "--group-size", "2", "--device", "cpu"});
  };
  const std::string one = resumed("4");
  EXPECT_TRUE(std::regex_search(one, std::regex("the updates of 1 step take at most [0-9.]+ ms;"))) << one;
  EXPECT_THAT(resumed("5"), HasSubstr("the updates of 2 steps take at most "));
}

TEST_F(DryRun, RefusesWhatNoFlagMakesFitAndSaysSo) {
  const fs::path huge = model_with([](nlohmann::json& config) {
    config["hidden_size"] = 96'000;
    config["num_hidden_layers"] = 90;
  });
  EXPECT_THAT(said(1, {"--dry-run", "--device", "cpu"}, huge),
              AllOf(HasSubstr("this run takes "), HasSubstr(" free, a sixteenth of which is reserved; no flag helps"),
                    Not(HasSubstr("tried on"))));
}

TEST_F(DryRun, NamesTheFlagThatMakesItFit) {
  const fs::path wide = model_with([](nlohmann::json& config) {  // activations of 12 MB per token
    config["intermediate_size"] = 8'000;
    config["num_hidden_layers"] = 100;
    config["max_position_embeddings"] = 100'000;
  });
  EXPECT_THAT(said(1, {"--dry-run", "--device", "cpu", "--max-tokens", "90000", "--micro-batch-tokens", "0"}, wide),
              AllOf(HasSubstr("--micro-batch-tokens="), Not(HasSubstr("no flag helps"))));
}

// Shorter rows fill up the micro-batch of the longest one: smaller micro-batches help.
TEST_F(DryRun, ItsAdviceFitsWhereALongRowIsFilledUp) {
  const fs::path wide = model_with([](nlohmann::json& config) {
    config["intermediate_size"] = 8'000;
    config["num_hidden_layers"] = 40;
    config["max_position_embeddings"] = 100'000;
  });
  const std::vector<std::string> shape{"--dry-run", "--device", "cpu", "--max-tokens", "60000"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), shape.begin(), shape.end());
    return more;
  };
  const std::string refused = said(1, with({"--micro-batch-tokens", "115000"}), wide);
  EXPECT_THAT(refused, Not(HasSubstr("no flag helps")));
  std::vector<std::string> advised;
  std::stringstream words(refused.substr(refused.find("is reserved; ")));
  for (std::string word; words >> word;)
    if (word.starts_with("--")) advised.push_back(word);
  EXPECT_FALSE(advised.empty());
  EXPECT_THAT(said(0, with(advised), wide), HasSubstr("in all, at the peak of an update"));
}

// Only the engines know how many problems a run drops: a schedule may fit the rest.
TEST_F(DryRun, TakesTheScheduleThatARunWouldTake) {
  const std::vector<std::string> flags{
      "--dry-run", "--device",           "cpu", "--task",       "data", "--data",        problems(""), "--epochs",
      "1",         "--prompts-per-step", "4",   "--max-tokens", "3",    "--decay-steps", "2"};
  EXPECT_THAT(said(2, flags), HasSubstr("give --decay-steps="));
  std::vector<std::string> dropping = flags;
  dropping.push_back("--drop-long");
  EXPECT_THAT(said(0, dropping), HasSubstr("tried on cpu"));
}

TEST_F(DryRun, CountsTheWorkedAnswersOfSupervisedTraining) {
  const auto plan = [&](const std::string& rationale) {
    const std::string output = said(0,
                                    {"--dry-run", "--supervised", "--task", "data", "--data", problems(rationale),
                                     "--prompts-per-step", "4", "--device", "cpu"},
                                    BASCULE_WORD_PROBLEMS);
    return std::stoi(output.substr(output.find("at most ") + 8));  // tokens of a micro-batch
  };
  std::string worked;
  for (int i = 0; i < 60; ++i) worked += "2 + 2 = 4. ";
  EXPECT_GT(plan(worked), plan("2 + 2 = 4.") + 4 * 200);
}

class Supervised : public TrainAlone {};

TEST_F(Supervised, ARunThatIsStoppedSavesItsStepAndSaysSoByItsStatus) {
  const std::string out = folder_ / "taught";
  Program train = alone({"--supervised", "--out", out, "--steps", "100000", "--prompts-per-step", "8"});
  ASSERT_TRUE(eventually([&] { return train.output().find("step 1/100000") != std::string::npos; }, 60s))
      << train.output();
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(60s), 130) << train.output();
  EXPECT_THAT(train.output(), AllOf(HasSubstr("stopped after step "),
                                    HasSubstr(" of 100000; " + out + " has the weights; give it as --model"),
                                    Not(HasSubstr("held out"))));
  EXPECT_TRUE(fs::exists(fs::path(out) / "model.safetensors"));
}

TEST_F(Supervised, SavesBeforeItEvaluatesAndHearsAStopThere) {
  const fs::path held_out = folder_ / "held_out.jsonl";
  {
    std::ofstream lines(held_out);
    for (int i = 0; i < 400'000; ++i)
      lines << R"({"prompt": "1+1=", "answer": "2"})"
            << "\n";
  }
  const std::string out = folder_ / "taught";
  Program train = alone({"--supervised", "--out", out, "--steps", "1", "--prompts-per-step", "8", "--task", "data",
                         "--data", problems(""), "--eval-data", held_out});
  ASSERT_TRUE(eventually([&] { return fs::exists(fs::path(out) / "model.safetensors"); }, 90s)) << train.output();
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(60s), 130) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("stopped in the evaluation; " + out + " has the weights"));
}

TEST_F(Supervised, RefusesAnswersThatItCannotTeachBeforeItBegins) {
  EXPECT_THAT(said(2, {"--supervised", "--out", folder_ / "taught", "--task", "data", "--data", problems("", "four")}),
              HasSubstr("answer \"four\": the vocabulary has no token"));
  EXPECT_FALSE(fs::exists(folder_ / "taught"));
}

}  // namespace
}  // namespace bascule::test
