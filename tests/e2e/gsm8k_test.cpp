// scripts/gsm8k and scripts/prove-gsm8k, as a user runs them, with the programs of this build.
#include <csignal>
#include <regex>
#include <set>

#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class Gsm8k : public Train {
 protected:
  Program script(const std::string& name, std::vector<std::string> flags) const {
    flags.insert(flags.begin(), (name == "make-word-problems" ? BASCULE_TOOLS "/" : BASCULE_SCRIPTS "/") + name);
    return Program(std::move(flags), folder_ / (name + ".log"));
  }
  // In its own process group, with the default SIGINT, even if the test ignores it.
  Program in_a_group(const std::string& name, const std::vector<std::string>& flags) const {
    return Program(with({"/usr/bin/env", "--default-signal=INT", "setsid", BASCULE_SCRIPTS "/" + name}, flags),
                   folder_ / (name + ".log"));
  }
  static std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  static std::string programs() { return fs::path(BASCULE_TRAIN).parent_path().string(); }

  // A model that is too small to learn anything.
  void write_small_config() const {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(BASCULE_WORD_PROBLEMS "/config.json"));
    config.update(
        {{"hidden_size", 32}, {"intermediate_size", 32}, {"num_hidden_layers", 1}, {"num_attention_heads", 2}});
    std::ofstream(folder_ / "config.json") << config;
  }
  std::vector<std::string> small_proof(const std::string& sft_steps, const std::string& steps) const {
    return {"--out",
            folder_ / "out",
            "--bin",
            programs(),
            "--device",
            "cpu",
            "--config",
            folder_ / "config.json",
            "--sft-problems",
            "500",
            "--sft-steps",
            sft_steps,
            "--steps",
            steps,
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
  }

  // Command lines of processes that name the folder.
  static std::vector<std::string> processes_that_name(const fs::path& folder) {
    std::vector<std::string> found;
    for (const fs::directory_entry& process : fs::directory_iterator("/proc")) {
      std::ifstream file(process.path() / "cmdline", std::ios::binary);
      std::string line(std::istreambuf_iterator<char>(file), {});
      if (line.find(folder.string()) != std::string::npos) found.push_back(std::move(line));
    }
    return found;
  }

  struct WordProblem {
    std::string words;  // the numbers, and all words except names of people and things
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
  Program make = script("make-word-problems", {data, "--sft-problems", "3000", "--train", "3000", "--test", "500"});
  ASSERT_EQ(make.wait(60s), 0) << make.output();
  std::set<std::string> trained, held_out;
  for (const auto& [name, count] : {std::pair("sft", 3000), {"train", 3000}, {"test", 500}}) {
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
    EXPECT_NEAR(slips / steps, std::string(name) == "sft" ? 0.35 : 0, 0.03) << name;
  }
  EXPECT_GT(held_out.size(), 400);
  for (const std::string& words : held_out) EXPECT_FALSE(trained.contains(words)) << words;
}

TEST_F(Gsm8k, WordProblemsAreWholeOrNotThere) {
  const fs::path data = folder_ / "data";
  Program make = script("make-word-problems", {data, "--sft-problems", "10000000"});
  ASSERT_TRUE(eventually([&] { return fs::exists(data / ".sft.jsonl.new"); }, 60s)) << make.output();
  make.signal(SIGTERM);
  EXPECT_EQ(make.wait(60s), 143) << make.output();
  EXPECT_TRUE(fs::is_empty(data));
}

// The model and the run are too small to learn anything: every part of the proof runs, and reports a failure.
TEST_F(Gsm8k, TheProofRunsFromProblemsToThePageAndFailsWhereNothingWasLearnt) {
  write_small_config();
  const auto flags = small_proof("2", "2");
  Program proof = script("prove-gsm8k", flags);
  EXPECT_EQ(proof.wait(120s), 1) << proof.output();
  EXPECT_THAT(proof.output(), HasSubstr("held-out reward rose by 0.000; expected 0.2 or more"));
  EXPECT_THAT(proof.output(), HasSubstr("before and after 2 steps"));
  EXPECT_TRUE(fs::exists(folder_ / "out/start/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "out/run/report.html"));
  EXPECT_EQ(metrics("out/run").size(), 3);
  Program again = script("prove-gsm8k", flags);
  EXPECT_EQ(again.wait(60s), 2);
  EXPECT_THAT(again.output(), HasSubstr("found an earlier one; remove it (rm -r " + (folder_ / "out/run").string()));
}

// Signals each process of the group, like a terminal.
TEST_F(Gsm8k, CtrlCEndsARunAfterItsStepWithACheckpoint) {
  write_small_config();
  Program start = script("prove-gsm8k", with({"--only-start"}, small_proof("2", "2")));
  ASSERT_EQ(start.wait(120s), 0) << start.output();
  Program run = in_a_group("gsm8k", {"--model",
                                     folder_ / "out/start",
                                     "--data",
                                     folder_ / "out/data",
                                     "--out",
                                     folder_ / "run",
                                     "--bin",
                                     programs(),
                                     "--device",
                                     "cpu",
                                     "--engine-dtype",
                                     "f32",
                                     "--steps",
                                     "3000",
                                     "--prompts",
                                     "4",
                                     "--group-size",
                                     "4",
                                     "--max-tokens",
                                     "8",
                                     "--eval-problems",
                                     "8",
                                     "--eval-every",
                                     "0",
                                     "--",
                                     "--threads",
                                     "1"});
  ASSERT_TRUE(eventually([&] { return metrics("run").size() > 2; }, 120s)) << run.output();
  EXPECT_EQ(::kill(-run.pid(), SIGINT), 0);
  EXPECT_EQ(run.wait(120s), 1) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("; continue with --resume=" + (folder_ / "run/step_").string()));
  EXPECT_THAT(run.output(), HasSubstr("ended before a second evaluation"));
  EXPECT_THAT(processes_that_name(folder_), IsEmpty());
}

TEST_F(Gsm8k, ASignalToTheProofEndsWhatItRunsAndLeavesNothingHalfMade) {
  write_small_config();
  Program proof = script("prove-gsm8k", small_proof("3000", "2"));
  ASSERT_TRUE(eventually([&] { return proof.output().find("  loss ") != std::string::npos; }, 120s)) << proof.output();
  proof.signal(SIGTERM);
  EXPECT_EQ(proof.wait(120s), 143) << proof.output();
  EXPECT_FALSE(fs::exists(folder_ / "out/start"));
  EXPECT_FALSE(fs::exists(folder_ / "out/start.new"));
  EXPECT_THAT(processes_that_name(folder_), IsEmpty());

  Program interrupted = in_a_group("prove-gsm8k", small_proof("2", "3000"));
  ASSERT_TRUE(eventually([&] { return metrics("out/run").size() > 2; }, 120s)) << interrupted.output();
  EXPECT_EQ(::kill(-interrupted.pid(), SIGINT), 0);
  EXPECT_EQ(interrupted.wait(120s), 130) << interrupted.output();
  EXPECT_THAT(interrupted.output(), HasSubstr("using " + (folder_ / "out/data").string() + ", made earlier"));
  EXPECT_THAT(interrupted.output(), HasSubstr("; continue with --resume="));
  EXPECT_THAT(processes_that_name(folder_), IsEmpty());
}

TEST_F(Gsm8k, RefusesWhatMakesNoSenseAndSaysWhatWould) {
  fs::create_directories(folder_ / "empty");
  std::ofstream(folder_ / "file") << "\n";
  fs::create_directories(folder_ / "data");
  for (const char* name : {"train.jsonl", "test.jsonl"}) std::ofstream(folder_ / "data" / name) << "\n";
  const std::string model = BASCULE_DEMO_MODEL, empty = folder_ / "empty", file = folder_ / "file";
  const std::vector<std::string> fit{"--model", model, "--data", folder_ / "data", "--bin", programs()};
  const std::vector<std::string> proof{"--out", folder_ / "out", "--bin", programs()};
  struct Bad {
    std::string script;
    std::vector<std::string> flags;
    std::string why;
  };
  const std::vector<Bad> bad{
      {"gsm8k", {}, "as --model Qwen2.5-0.5B-Instruct"},
      {"gsm8k", {"--model", model}, "expected a folder with train.jsonl and test.jsonl"},
      {"gsm8k", {"--model", empty, "--data", empty}, "found no config.json in it"},
      {"gsm8k", {"--model", model, "--data", empty}, "expected train.jsonl in it; get both from"},
      {"gsm8k", {"--model"}, "--model needs a value"},
      {"gsm8k", {"--modle=x"}, "unknown argument --modle"},
      {"gsm8k", with(fit, {"--out="}), "--out=: expected a folder"},
      {"gsm8k", with(fit, {"--out", file}), "expected a folder for the results, found a file"},
      {"gsm8k", with(fit, {"--engines", "0"}), "--engines=0: expected a number, 1 or more"},
      {"gsm8k", with(fit, {"--", "--out", empty}), "expected --out before --"},
      {"prove-gsm8k", with(proof, {"--sft-steps", "abc"}), "--sft-steps=abc: expected a number, 1 or more"},
      {"prove-gsm8k", with(proof, {"--sft-problems", "0"}), "--sft-problems=0: expected a number, 1 or more"},
      {"prove-gsm8k", with(proof, {"--bin", empty}), "expected a folder with bascule-train in it"},
      {"prove-gsm8k", with(proof, {"--out="}), "--out=: expected a folder"},
      {"prove-gsm8k", with(proof, {"--", "--out=x"}), "expected --out before --"},
      {"make-word-problems", {file}, "expected a folder, found the file"},
      {"make-word-problems", {"--sft-problems", "abc", empty}, "expected a number, 1 or more, found abc"},
  };
  for (const auto& [name, flags, why] : bad) {
    Program run = script(name, flags);
    EXPECT_EQ(run.wait(60s), 2) << why;
    EXPECT_THAT(run.output(), HasSubstr(why));
    EXPECT_FALSE(fs::exists(folder_ / "out")) << why;
  }
}

}  // namespace
}  // namespace bascule::test
