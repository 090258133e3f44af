// bascule-train with engines that it starts itself, as processes: one command, from its first line to its last process.
#include <signal.h>
#include <unistd.h>

#include <regex>
#include <set>
#include <sstream>

#include "support/environment.h"
#include "support/processes/command_lines.h"
#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>
#include <bascule/trainer_ref/program/pair.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class Spawn : public Train {
 protected:
  // With only the required flags, and flags that keep it short. In its own process group, as a shell starts it.
  Program train(std::vector<std::string> more, int engines = 2) const {
    std::vector<std::string> command{"/usr/bin/setsid",
                                     BASCULE_TRAIN,
                                     "--model=" BASCULE_DEMO_MODEL,
                                     "--spawn-engines=" + std::to_string(engines),
                                     "--out=" + out().string(),
                                     "--max-tokens=3",
                                     "--learning-rate=3e-4",
                                     "--eval-problems=20",
                                     "--prompts-per-step=16",
                                     "--group-size=8",
                                     "--request-timeout=20s"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / "train.log");
  }
  fs::path out() const { return folder_ / "out"; }

  // The endpoint that the run chose, once it has logged it.
  static std::string endpoint_of(const Program& train) {
    const std::string words = " engines at shm://", output = train.output();
    const std::size_t begin = output.find(words), end = output.find('\n', begin);
    if (begin == std::string::npos || end == std::string::npos) return "";
    return output.substr(begin + words.size(), end - begin - words.size());
  }
  static pid_t engine(const std::string& endpoint, const std::string& name) {
    for (const pid_t pid : processes_with("--worker=" + name))
      if (command_line(pid).find(endpoint) != std::string::npos) return pid;
    return -1;
  }
  // Expects nothing left of a run: no engine, no process that removes the folder, and no folder.
  static void expect_nothing_left(const std::string& endpoint) {
    ASSERT_FALSE(endpoint.empty());
    EXPECT_TRUE(eventually([&] { return processes_with(endpoint).empty(); }, 60s));
    EXPECT_TRUE(eventually([&] { return !fs::exists(endpoint); }, 60s)) << endpoint;
  }
  bool trains(Program& train, std::size_t lines = 3) const {
    return eventually([&] { return metrics("out").size() >= lines || !train.running(); }, 120s) && train.running();
  }
  static std::set<std::string> urls_of(const std::vector<nlohmann::json>& lines) {
    std::set<std::string> urls;
    for (const nlohmann::json& line : lines)
      for (const nlohmann::json& span : line["engines"]) urls.insert(span["engine"]);
    return urls;
  }
};

TEST_F(Spawn, OneCommandTrainsToTheEndAndLeavesNothing) {
  Program run = train({"--steps=3"});
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  EXPECT_EQ(metrics("out").size(), 4);
  EXPECT_EQ(urls_of(metrics("out")).size(), 2) << "both generated";
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[engine-0] listening on http://127.0.0.1:"),
                                  HasSubstr("[engine-1] listening on http://127.0.0.1:")));
  EXPECT_THAT(run.output(), Not(HasSubstr("; restart ")));
  expect_nothing_left(endpoint_of(run));
}

TEST_F(Spawn, AnEngineThatIsKilledIsStartedAgainAndServes) {
  Program run = train({"--steps=100000"});
  ASSERT_TRUE(trains(run)) << run.output();
  const std::string endpoint = endpoint_of(run);
  const pid_t first = engine(endpoint, "engine-1");
  ASSERT_GT(first, 0);
  const std::set<std::string> before = urls_of(metrics("out"));
  ::kill(first, SIGKILL);
  const auto serves_elsewhere = [&] {
    for (const std::string& url : urls_of(metrics("out")))
      if (!before.contains(url)) return true;
    return !run.running();
  };
  ASSERT_TRUE(eventually(serves_elsewhere, 120s)) << run.output();
  ASSERT_TRUE(run.running()) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("engine-1: it was ended by signal 9; restart 1 of 3"));
  EXPECT_NE(engine(endpoint, "engine-1"), first);

  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(120s), 0) << run.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i) << "none was lost";
  EXPECT_TRUE(fs::exists(out() / ("step_" + std::to_string(lines.size() - 1)) / "model.safetensors"));
  expect_nothing_left(endpoint);
}

TEST_F(Spawn, EnginesThatAreAllKilledAtOnceAreWaitedForAndTheRunGoesOn) {
  for (const int engines : {1, 2}) {
    Program run = train({"--steps=100000"}, engines);
    ASSERT_TRUE(trains(run)) << run.output();
    const std::string endpoint = endpoint_of(run);
    for (int i = 0; i < engines; ++i) ::kill(engine(endpoint, "engine-" + std::to_string(i)), SIGKILL);
    const std::set<std::string> before = urls_of(metrics("out"));
    const auto served_elsewhere = [&] {
      for (const std::string& url : urls_of(metrics("out")))
        if (!before.contains(url)) return true;
      return !run.running();
    };
    ASSERT_TRUE(eventually(served_elsewhere, 120s)) << run.output();
    ASSERT_TRUE(run.running()) << run.output();
    run.signal(SIGTERM);
    EXPECT_EQ(run.wait(120s), 0) << run.output();
    const std::vector<nlohmann::json> lines = metrics("out");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["step"], i) << "none was lost";
      EXPECT_EQ(lines[i]["dropped"], 0) << "nor was any request";
    }
    expect_nothing_left(endpoint);
    fs::remove_all(out());
  }
}

TEST_F(Spawn, AnEngineThatDiesTooOftenEndsTheRunWithACheckpointAndTheReason) {
  Program run = train({"--steps=100000", "--max-engine-restarts=0"});
  ASSERT_TRUE(trains(run)) << run.output();
  const std::string endpoint = endpoint_of(run);
  ::kill(engine(endpoint, "engine-0"), SIGKILL);
  EXPECT_EQ(run.wait(120s), 1) << run.output();
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("bascule-train: engine-0: it was ended by signal 9, and it was restarted 0 times "
                              "within an hour already (--max-engine-restarts)"),
                    HasSubstr("ended after step "), HasSubstr("continue with --resume=")));
  const std::size_t last = metrics("out").size() - 1;
  EXPECT_TRUE(fs::exists(out() / ("step_" + std::to_string(last)) / "model.safetensors"));
  expect_nothing_left(endpoint);
}

TEST_F(Spawn, AnEngineThatCannotStartEndsTheRunAtOnceWithItsWords) {
  const Environment runtime("XDG_RUNTIME_DIR", folder_.c_str());  // so that the endpoint would be seen
  const std::vector<std::pair<std::string, std::string>> bad{
      {"--engine-flags=--max-batch=0", "bascule-engine: --max-batch=0: give a value from 1 to 65536"},
      {"--engine-flags=--max-bathc=4", "did you mean --max-batch?"},
      {"--engine-program=/nowhere/engine", "--engine-program=/nowhere/engine: expected a program that may be run"},
  };
  for (const auto& [flag, why] : bad) {
    Program run = train({flag, "--engine-timeout=1h"});
    EXPECT_EQ(run.wait(120s), 2) << run.output();
    EXPECT_THAT(run.output(), HasSubstr(why));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("bascule-run-"))) << "the endpoint";
    EXPECT_FALSE(fs::exists(out() / "run.json"));
  }
  const fs::path program = folder_ / "engine";
  std::ofstream(program)
      << "#!/bin/sh\nfor word; do case $word in --worker=*) echo bad luck, $word;; esac; done; exit 1\n";
  fs::permissions(program, fs::perms::owner_all);
  Program exits = train({"--engine-program=" + program.string(), "--engine-timeout=1h"});
  EXPECT_EQ(exits.wait(120s), 1) << exits.output();
  const std::regex whichever_failed_first(
      "(engine-[01]): it ended with exit status 1 before it listened; "
      "its last lines:\n    bad luck, --worker=\\1\n");
  EXPECT_TRUE(std::regex_search(exits.output(), whichever_failed_first)) << exits.output();
  EXPECT_THAT(exits.output(), Not(HasSubstr("after step"))) << "it was not stopped, and had not begun";
}

TEST_F(Spawn, NothingIsLeftOfATrainerThatIsKilled) {
  Program run = train({"--steps=100000"});
  ASSERT_TRUE(trains(run)) << run.output();
  const std::string endpoint = endpoint_of(run);
  ASSERT_GT(engine(endpoint, "engine-0"), 0);
  run.kill();
  expect_nothing_left(endpoint);
}

// As from a terminal, every process of the trainer's group gets the signal.
TEST_F(Spawn, CtrlCEndsTheRunAfterItsStepWithEnginesThatLiveUntilThen) {
  Program run = train({"--steps=100000"});
  ASSERT_TRUE(trains(run)) << run.output();
  const std::string endpoint = endpoint_of(run);
  ASSERT_EQ(::getpgid(run.pid()), run.pid());
  ::kill(-run.pid(), SIGINT);
  EXPECT_EQ(run.wait(120s), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("stopped after step "), HasSubstr("continue with --resume=")));
  EXPECT_THAT(run.output(), Not(AnyOf(HasSubstr("; restart "), HasSubstr(" is down"), HasSubstr(", and is killed"))));
  expect_nothing_left(endpoint);
}

TEST_F(Spawn, OneFileAndOneEnvironmentServeBothPrograms) {
  const fs::path file = folder_ / "both.json";
  std::ofstream(file) << R"({"model": ")" BASCULE_DEMO_MODEL R"(", "max-step-tokens": 512,
                            "train": {"spawn-engines": 1, "max-tokens": 3, "eval-problems": 20, "steps": 7},
                            "engine": {"max-batch": 4, "listen": "127.0.0.1:1"}})";
  const Environment config("BASCULE_CONFIG", file.c_str()), steps("BASCULE_STEPS", "2"),
      typo("BASCULE_PROMPTS_PER_STEPS", "9"), prompts("BASCULE_PROMPTS_PER_STEP", "4");
  Program refused({BASCULE_TRAIN, "--out=" + out().string()}, folder_ / "refused.log");
  EXPECT_EQ(refused.wait(120s), 1) << refused.output();
  EXPECT_THAT(refused.output(), HasSubstr("--group-size=16: the engines make at most 4 completions of a prompt"))
      << "the file's, which the engine read";
  EXPECT_THAT(refused.output(),
              HasSubstr("bascule-train: the environment's BASCULE_PROMPTS_PER_STEPS names no flag; did "
                        "you mean BASCULE_PROMPTS_PER_STEP?"));

  const Environment batch("BASCULE_MAX_BATCH", "16");
  Program run({BASCULE_TRAIN, "--out=" + out().string()}, folder_ / "run.log");
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  EXPECT_EQ(metrics("out").size(), 3) << "two steps: the environment overrides the file";
}

// A resumed run must have the same settings, so the two files mean the same.
TEST_F(Spawn, ARunOfAYamlFileWithAxolotlsSectionsContinuesWithOurFlagsAsJson) {
  const fs::path yaml = folder_ / "run.yaml", json = folder_ / "run.json";
  std::ofstream(yaml) << "model: " BASCULE_DEMO_MODEL R"(
learning_rate: 3e-4
trl:
  use_vllm: true
  vllm_mode: colocate    # the trainer starts an engine
  max_completion_length: 3
  num_generations: 8
  beta: 0.01
  epsilon: 0.1
  loss_type: dapo
  reward_funcs: [exact_match, finished]
  reward_weights: [1, 0.5]
vllm:
  host: 127.0.0.1
  port: 0
  dtype: auto
  max_model_len: 24
train: {prompts-per-step: 4, eval-problems: 20, steps: 1}
)";
  std::ofstream(json) << R"({"model": ")" BASCULE_DEMO_MODEL R"(", "learning-rate": 3e-4,
    "train": {"spawn-engines": 1, "max-tokens": 3, "group-size": 8, "beta": 0.01, "epsilon-low": 0.1,
              "epsilon-high": 0.1, "loss": "dapo", "reward": "exact_match=1,finished=0.5", "prompts-per-step": 4,
              "eval-problems": 20, "steps": 2},
    "engine": {"max-model-len": 24}})";
  {
    Program alone({BASCULE_ENGINE, "--config=" + yaml.string(), "--threads=1"}, folder_ / "alone.log");
    const auto models = ref::HttpClient().get(url_of(alone) + "/v1/models", absl::Seconds(30));
    ASSERT_TRUE(models.ok()) << models.status();
    EXPECT_EQ(nlohmann::json::parse(models->body)["data"][0]["max_model_len"], 24);
  }
  Program begun({BASCULE_TRAIN, "--config=" + yaml.string(), "--out=" + out().string()}, folder_ / "begun.log");
  ASSERT_EQ(begun.wait(180s), 0) << begun.output();
  Program continued({BASCULE_TRAIN, "--config=" + json.string(), "--out=" + out().string(),
                     "--resume=" + (out() / "step_1").string()},
                    folder_ / "continued.log");
  ASSERT_EQ(continued.wait(180s), 0) << continued.output();
  EXPECT_TRUE(fs::exists(out() / "step_2"));
}

TEST_F(Spawn, EachProgramKnowsAllFlagsOfTheOther) {
  const auto flags_of = [this](const std::string& program) {
    Program help({program, "--help"}, folder_ / "help.log");
    EXPECT_EQ(help.wait(60s), 0);
    std::istringstream stream(help.output());
    std::vector<std::string> names;
    for (std::string line; std::getline(stream, line);)
      if (line.starts_with("  --") && line.find('=') != std::string::npos)
        names.push_back(line.substr(4, line.find('=') - 4));
    std::erase_if(names, [](const std::string& name) { return name == "config"; });
    return names;
  };
  EXPECT_THAT(ref::train_program("").companions.front().flags,
              ::testing::UnorderedElementsAreArray(flags_of(BASCULE_ENGINE)));
  EXPECT_THAT(ref::engine_program("").companions.front().flags,
              ::testing::UnorderedElementsAreArray(flags_of(BASCULE_TRAIN)));
}

}  // namespace
}  // namespace bascule::test
