// A run of bascule-train that goes on from a checkpoint of an earlier one, and what it compares.
#include <csignal>
#include <map>

#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

TEST_F(Train, GoesOnExactlyFromACheckpoint) {
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  // Without importance weights, which rounding in the engine's batches would affect, every bit must agree.
  const std::vector<std::string> common{"--prompts-per-step", "8", "--group-size", "8", "--importance-cap", "0",
                                        "--eval-every",       "0", "--seed",       "5", "--steps",          "4"};
  std::vector<std::string> more = common;
  more.insert(more.end(), {"--save-every", "2"});
  Program straight = trainer(url, "straight", more);
  ASSERT_EQ(straight.wait(90s), 0) << straight.output();

  // A second trainer at the same endpoint: the engine, still up, takes its versions.
  more = common;
  more.insert(more.end(), {"--resume", (folder_ / "straight" / "step_2").string()});
  Program resumed = trainer(url, "resumed", more);
  ASSERT_EQ(resumed.wait(90s), 0) << resumed.output();

  const std::vector<nlohmann::json> all = metrics("straight"), rest = metrics("resumed");
  ASSERT_EQ(all.size(), 5);
  ASSERT_EQ(rest.size(), 2) << "steps 3 and 4";
  for (std::size_t i = 0; i < 2; ++i)
    for (const char* key : {"step", "reward_mean", "loss", "grad_norm"})
      EXPECT_EQ(rest[i][key], all[i + 3][key]) << key;
  EXPECT_GT(rest[0]["version"], all[4]["version"]) << "versions only grow, over restarts too";
  EXPECT_EQ(bytes("resumed/step_4/model.safetensors"), bytes("straight/step_4/model.safetensors"));
  EXPECT_EQ(bytes("resumed/step_4/optimizer.safetensors"), bytes("straight/step_4/optimizer.safetensors"));

  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {  // a disk that lost a page
    const fs::path file = folder_ / "straight" / "step_2" / name;
    const std::string whole = bytes(fs::path("straight") / "step_2" / name);
    std::string damaged = whole;
    damaged.replace(damaged.size() / 2, 4096, std::string(4096, '\0'));
    std::ofstream(file, std::ios::binary) << damaged;
    Program refused = trainer(url, "damaged", more);
    EXPECT_NE(refused.wait(90s), 0);
    EXPECT_THAT(refused.output(), HasSubstr(file.string() + ": its bytes have changed since it was saved"));
    std::ofstream(file, std::ios::binary) << whole;
  }
}

TEST_F(Train, AResumedRunIsComparedWithTheRunThatItGoesOnWith) {
  Program only = engine("engine-0");
  const fs::path first = folder_ / "first", other = folder_ / "other";
  fs::copy(BASCULE_DEMO_MODEL, first);
  fs::copy(BASCULE_DEMO_MODEL, other);
  scale_by_power_of_two(other / "model.safetensors", "lm_head.weight", 1);
  const auto run = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--prompts-per-step", "4", "--group-size", "4", "--eval-every", "0", "--beta", "0.04"});
    return trainer(url_of(only), out, more);
  };
  Program start = run("out", {"--model", first, "--steps", "1"});
  ASSERT_EQ(start.wait(90s), 0) << start.output();
  const std::string step = folder_ / "out" / "step_1";

  Program changed =
      run("changed", {"--resume", step, "--steps", "2", "--model", other, "--learning-rate", "2e-6", "--seed", "3"});
  EXPECT_EQ(changed.wait(60s), 2) << changed.output();
  EXPECT_THAT(changed.output(),
              HasSubstr("--learning-rate: the run was trained with 0.0003, found 2e-06; --seed: the run "
                        "was trained with 0, found 3; --model: the run began with "));

  Program allowed = run("allowed", {"--resume", step, "--steps", "2", "--model", other, "--allow-changes"});
  EXPECT_EQ(allowed.wait(90s), 0) << allowed.output();
  EXPECT_THAT(allowed.output(), HasSubstr("found another model.safetensors in " + other.string() + "; continuing"));
  Program straight = run("straight", {"--resume", step, "--steps", "2", "--model", ""});
  EXPECT_EQ(straight.wait(90s), 0) << straight.output();
  ASSERT_EQ(metrics("allowed").size(), 1);
  ASSERT_EQ(metrics("straight").size(), 1);
  EXPECT_EQ(metrics("allowed")[0]["kl"], metrics("straight")[0]["kl"]) << "both from the first model";
  EXPECT_EQ(nlohmann::json::parse(bytes("allowed/step_2/trainer_state.json"))["model"], fs::canonical(first).string());

  fs::rename(first, folder_ / "moved");
  Program gone = run("gone", {"--resume", step, "--steps", "2", "--model", other, "--allow-changes"});
  EXPECT_EQ(gone.wait(60s), 2) << gone.output();
  EXPECT_THAT(gone.output(), HasSubstr("which is gone; give a folder that holds it, as --model=FOLDER"));
  Program moved = run("moved-run", {"--resume", step, "--steps", "2", "--model", folder_ / "moved"});
  EXPECT_EQ(moved.wait(90s), 0) << moved.output();
}

// Here the engines of a run are gone, and it is to be continued in its own folder.
// What its version did not know it had at the defaults.
TEST_F(Train, ARunOfAnOlderVersionIsComparedByTheDefaults) {
  Program only = engine("engine-0");
  const auto run = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--prompts-per-step", "4", "--group-size", "4", "--eval-every", "0"});
    return trainer(url_of(only), out, more);
  };
  Program start = run("out", {"--steps", "1"});
  ASSERT_EQ(start.wait(90s), 0) << start.output();
  const std::string step = folder_ / "out" / "step_1";
  nlohmann::json state = nlohmann::json::parse(bytes("out/step_1/trainer_state.json"));
  for (const char* name : {"importance-level", "mini-batches"}) ASSERT_EQ(state["flags"].erase(name), 1) << name;
  std::ofstream(step + "/trainer_state.json") << state;
  Program changed = run("changed", {"--resume", step, "--steps", "2", "--mini-batches", "8"});
  EXPECT_EQ(changed.wait(60s), 2) << changed.output();
  EXPECT_THAT(changed.output(),
              HasSubstr("--mini-batches: the run was trained with 1, found 8; give what the run had"));
}

TEST_F(Train, AResumedRunWhoseEnginesDoNotComeLeavesWhatItFound) {
  Program only = engine("engine-0");
  const std::vector<std::string> small{"--prompts-per-step", "4", "--group-size", "4", "--save-every", "1"};
  std::vector<std::string> more = small;
  more.insert(more.end(), {"--steps", "2"});
  Program first = trainer(url_of(only), "out", more);
  ASSERT_EQ(first.wait(90s), 0) << first.output();
  only.kill();
  const auto files = [&] {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::directory_iterator(folder_ / "out"))
      content[entry.path().filename()] = entry.is_directory() ? "" : bytes(fs::path("out") / entry.path().filename());
    return content;
  };
  const std::map<std::string, std::string> before = files();
  more = small;
  more.insert(more.end(),
              {"--steps", "3", "--engine-timeout", "1s", "--resume", (folder_ / "out" / "step_1").string()});
  Program resumed = trainer("http://127.0.0.1:1", "out", more);
  EXPECT_EQ(resumed.wait(60s), 1) << resumed.output();
  EXPECT_TRUE(files() == before) << "step 2 as well, which it would have trained again";
  EXPECT_THAT(resumed.output(), Not(HasSubstr("after step"))) << "it had not begun";
}

TEST_F(Train, NamesNoCheckpointThatItHasNot) {
  const std::string nobody = "http://127.0.0.1:1";
  Program train = trainer(nobody, "out", {"--engine-timeout", "10m"});
  ASSERT_TRUE(eventually([&] { return train.output().find("waiting for") != std::string::npos; }, 60s));
  train.signal(SIGTERM);  // detected at once, however long engines take
  EXPECT_EQ(train.wait(60s), 0) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("stopped after step 0; nothing was saved"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// The limit lets the weights be written, and not the moments, which take twice as much: as on a disk that is full.
TEST_F(Train, SaysHowToGoOnWhereItsLastCheckpointCannotBeWritten) {
  Program only = engine("engine-0");
  std::vector<std::string> command = trainer_command(url_of(only), "out", {"--steps", "2", "--eval-every", "0"});
  command.insert(command.begin(), {"/bin/bash", "-c", "ulimit -f 2000; exec \"$@\"", "bash"});
  Program train(std::move(command), folder_ / "out.log");
  EXPECT_EQ(train.wait(90s), 1) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("ended after step 2; nothing was saved"));
  EXPECT_THAT(train.output(), HasSubstr("File too large"));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "report.html"));
}

TEST_F(Train, ResumeSeesAnotherRewardProgramAndAnotherTypeOnTheWire) {
  const fs::path program = folder_ / "score.py";
  fs::copy(BASCULE_EXAMPLES "/rewards/digits.py", program);
  const auto run = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--prompts-per-step", "4", "--group-size", "4", "--eval-every", "0", "--reward",
                             "exec:python3 " + program.string()});
    return trainer("http://127.0.0.1:1", out, std::move(more));
  };
  {
    Program only = engine("engine-0");
    Program start = run("out", {"--engines", url_of(only), "--steps", "1"});
    ASSERT_EQ(start.wait(90s), 0) << start.output();
  }
  std::ofstream(program, std::ios::app) << "# other\n";
  Program changed =
      run("changed", {"--resume", folder_ / "out" / "step_1", "--steps", "2", "--sync", sync_ + "?wire_dtype=bf16"});
  EXPECT_EQ(changed.wait(60s), 2) << changed.output();
  EXPECT_THAT(changed.output(), HasSubstr("--engine-dtype: the run was trained with f32, found bf16; --reward: the run "
                                          "was trained with another content of " +
                                          program.string()));
}

}  // namespace
}  // namespace bascule::test
