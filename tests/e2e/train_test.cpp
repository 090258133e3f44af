// bascule-train and bascule-engine as processes: a run that loses an engine, and one after another over files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <thread>

#include "support/environment.h"
#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST_F(Train, GoesOnWhenAnEngineIsKilledAndServesItAgainWhenItIsBack) {
  Program first = engine("engine-0"), second = engine("engine-1");
  const std::string url = url_of(second);
  Program train = trainer(url_of(first) + "," + url, "out",
                          {"--steps", "1000", "--prompts-per-step", "16", "--group-size", "8", "--max-staleness", "1"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 3 || !train.running(); }, 90s)) << train.output();
  ASSERT_TRUE(train.running()) << train.output();

  second.kill();
  const std::size_t lost_at = metrics("out").size();
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > lost_at + 2; }, 60s)) << "continues with one engine\n"
                                                                                    << train.output();
  const std::vector<std::uint64_t> before = versions_of(metrics("out"), url);
  ASSERT_FALSE(before.empty());

  second = engine("engine-1", url.substr(url.rfind(':') + 1));
  const auto serves_again = [&] { return versions_of(metrics("out"), url).size() > before.size() + 2; };
  ASSERT_TRUE(eventually(serves_again, 60s)) << train.output() << second.output();
  EXPECT_GT(versions_of(metrics("out"), url).back(), before.back()) << "the newest, not its old one";

  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(60s), 0) << train.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i);
    if (i == 0) continue;
    EXPECT_LE(lines[i]["staleness_mean"], 1.0);
    EXPECT_GT(lines[i]["version"], lines[i - 1]["version"]);
  }
  const std::string last = "step_" + std::to_string(lines.back()["step"].get<int>());
  EXPECT_TRUE(fs::exists(folder_ / "out" / last / "model.safetensors")) << "SIGTERM writes a checkpoint";
  EXPECT_THAT(train.output(), HasSubstr("continue with --resume=" + (folder_ / "out" / last).string()));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "report.html"));
  EXPECT_THAT(train.output(), HasSubstr("engine " + url + " is back"));
}

// The demo's likeliest answer is right; sampled from all tokens, one in five is.
TEST_F(Train, TopPAndTopKCutRolloutsAndNotEvaluations) {
  Program only = engine("engine-0");
  const auto reward = [&](const std::string& out, const std::string& flag, const std::string& value) {
    Program train =
        trainer(url_of(only), out, {"--steps", "1", "--prompts-per-step", "16", "--group-size", "8", flag, value});
    EXPECT_EQ(train.wait(90s), 0) << train.output();
    const std::vector<nlohmann::json> lines = metrics(out);
    EXPECT_EQ(lines.size(), 2);
    EXPECT_LT(lines.at(0)["eval_reward"].get<double>(), 0.5);
    return lines.at(1)["reward_mean"].get<double>();
  };
  EXPECT_LT(reward("all", "--top-p", "1"), 0.4);
  EXPECT_GT(reward("top-p", "--top-p", "0.01"), 0.9) << "the likeliest token alone";
  EXPECT_GT(reward("top-k", "--top-k", "2"), 0.6) << "its rival is eight times less likely";
}

// Problems of files, some of them token ids (1+1= is 0 1 10 0 1 11), and the example of a user's reward.
TEST_F(Train, LearnsFromFilesByAProgramsReward) {
  std::ofstream data(folder_ / "data.jsonl"), eval(folder_ / "eval.jsonl");
  for (int i = 0; i < 9; ++i) data << R"({"sum": "0)" << i << R"(+01=", "result": ")" << i + 1 << "0\"}\n";
  data << R"({"prompt_token_ids": [0, 1, 10, 0, 1, 11], "result": "20"})"
       << "\n";
  eval << R"({"sum": "12+13=", "result": 52})"
       << "\n";
  data.close();
  eval.close();
  Program only = engine("engine-0");
  Program train = trainer(
      url_of(only), "run",
      {"--steps", "2", "--prompts-per-step", "10", "--group-size", "4", "--task", "data", "--data",
       (folder_ / "data.jsonl").string(), "--eval-data", (folder_ / "eval.jsonl").string(), "--prompt-column", "sum",
       "--answer-column", "result", "--reward", "exact_match,exec:" BASCULE_EXAMPLES "/rewards/digits.py=0.5"});
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  const std::vector<nlohmann::json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 3);
  for (std::size_t i = 1; i < 3; ++i) {
    const nlohmann::json& rewards = lines[i]["rewards"];
    EXPECT_GT(rewards["exec:digits.py"], rewards["exact_match"]) << "one digit of two is worth something";
    EXPECT_NEAR(lines[i]["reward_mean"].get<double>(),
                rewards["exact_match"].get<double>() + 0.5 * rewards["exec:digits.py"].get<double>(), 1e-9);
  }
  const nlohmann::json& before = lines[0]["eval_rewards"];
  EXPECT_NEAR(lines[0]["eval_reward"].get<double>(),
              before["exact_match"].get<double>() + 0.5 * before["exec:digits.py"].get<double>(), 1e-9);
  EXPECT_THAT(train.output(), HasSubstr("\"12+13=\" answer \"52\""));
}

TEST_F(Train, EndsAfterStepsWithoutFiniteGradientsWithACheckpointOfItsLastWeights) {
  const fs::path model = folder_ / "model";
  make_model_without_finite_gradients(model);
  Program only = engine("engine-0", "0", {"--model", model});
  Program train = trainer(url_of(only), "out",
                          {"--model", model, "--steps", "100", "--prompts-per-step", "4", "--group-size", "8",
                           "--eval-every", "0", "--max-bad-steps", "3"});
  EXPECT_EQ(train.wait(90s), 1) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("steps 1 to 3: expected a finite loss and finite gradients, found none; the "
                                        "weights are still from step 0"));
  EXPECT_THAT(train.output(), HasSubstr("skipped 1 updates"));
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[3]["skipped_updates"], 1);
  EXPECT_TRUE(lines[3]["grad_norm"].is_null());
  const nlohmann::json state = nlohmann::json::parse(bytes("out/step_3/trainer_state.json"));
  EXPECT_EQ(state["step"], 3);
  EXPECT_EQ(state["optimizer_steps"], 0);
}

// The reward's program fails on held-out problems once it has seen one to train on.
TEST_F(Train, GoesOnWhereAnEvaluationFails) {
  std::ofstream(folder_ / "data.jsonl") << R"({"prompt": "01+02=", "answer": "30"})"
                                        << "\n";
  std::ofstream(folder_ / "eval.jsonl") << R"({"prompt": "12+13=", "answer": "52"})"
                                        << "\n";
  std::ofstream(folder_ / "reward.py") << R"(
import json, os, sys
for line in sys.stdin:
    request, seen = json.loads(line), sys.argv[1]
    if any(c["prompt"] == "12+13=" for c in request["completions"]):
        if os.path.exists(seen): sys.exit("no score today")
    else:
        open(seen, "w").close()
    print(json.dumps({"id": request["id"], "rewards": [1] * len(request["completions"])}), flush=True)
)";
  Program only = engine("engine-0");
  Program train =
      trainer(url_of(only), "out",
              {"--steps", "2", "--eval-every", "1", "--prompts-per-step", "2", "--group-size", "4", "--task", "data",
               "--data", (folder_ / "data.jsonl").string(), "--eval-data", (folder_ / "eval.jsonl").string(),
               "--reward", "exec:python3 " + (folder_ / "reward.py").string() + " " + (folder_ / "seen").string()});
  EXPECT_EQ(train.wait(90s), 0) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("step 1 was not evaluated: "));
  EXPECT_THAT(train.output(), HasSubstr("no score today"));
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 3) << train.output();
  EXPECT_TRUE(lines[0].contains("eval_reward"));
  for (std::size_t i : {1, 2}) {
    EXPECT_EQ(lines[i]["reward_mean"], 1);
    EXPECT_FALSE(lines[i].contains("eval_reward"));
  }
}

TEST_F(Train, RunsOneAfterAnotherOverFilesAgainstAnEngineThatStaysUp) {
  sync_ = "memmap://" + (folder_ / "sync").string();
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  for (const std::string run : {"first", "second"}) {
    Program train =
        trainer(url, run,
                {"--steps", "2", "--prompts-per-step", "4", "--group-size", "4", "--seed", run == "first" ? "1" : "2"});
    ASSERT_EQ(train.wait(90s), 0) << run << "\n" << train.output() << only.output();
    ASSERT_TRUE(only.running()) << only.output();
  }
  const std::vector<nlohmann::json> first = metrics("first"), second = metrics("second");
  ASSERT_EQ(first.size(), 3);
  ASSERT_EQ(second.size(), 3);
  EXPECT_GT(second.front()["version"], first.back()["version"]) << "versions only grow, even over runs";
  EXPECT_GE(versions_of(second, url).front(), second.front()["version"]) << "generated with the second run's weights";
}

TEST_F(Train, EnginesOfItsDeviceSleepWhileItTrains) {
  Program first = engine("engine-0"), second = engine("engine-1");
  const std::vector<std::string> urls{url_of(first), url_of(second)};
  const auto sleeps = [](const std::string& url) {
    ref::HttpClient client;
    const absl::StatusOr<ref::HttpResponse> answer = client.get(url + "/is_sleeping", absl::Seconds(10));
    return answer.ok() && nlohmann::json::parse(answer->body)["is_sleeping"].get<bool>();
  };
  Program train = trainer(urls[0] + "," + urls[1], "out", {"--steps", "1000", "--colocate"});
  for (const std::string& url : urls) EXPECT_TRUE(eventually([&] { return sleeps(url); }, 60s)) << train.output();
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 3 || !train.running(); }, 60s)) << train.output();

  // This engine is put to sleep last: then the trainer trains, and its next need of an engine is its send.
  ASSERT_TRUE(eventually([&] { return sleeps(urls[1]); }, 60s)) << train.output();
  first.kill();
  EXPECT_EQ(train.wait(60s), 1) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("engine " + urls[0] + " did not "));
  EXPECT_FALSE(sleeps(urls[1])) << "a run that ends wakes the others";
  std::vector<nlohmann::json> saved;
  for (const auto& entry : fs::directory_iterator(folder_ / "out"))
    if (entry.is_directory())
      saved.push_back(nlohmann::json::parse(std::ifstream(entry.path() / "trainer_state.json")));
  ASSERT_EQ(saved.size(), 1) << train.output();
  EXPECT_EQ(saved[0]["step"], saved[0]["optimizer_steps"]) << "the step of its weights";
}

TEST_F(Train, SighupEndsItLikeSigtermAndALogThatNobodyReadsDoesNot) {
  Program only = engine("engine-0");
  const fs::path pipe = folder_ / "out.log";  // of stdout and stderr
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reading = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  Program train = trainer(url_of(only), "out", {"--steps", "100000", "--prompts-per-step", "4", "--group-size", "4"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 1 || !train.running(); }, 90s));
  ::close(reading);  // `| head` has seen enough
  const std::size_t closed_at = metrics("out").size();
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > closed_at + 3 || !train.running(); }, 60s));
  ASSERT_TRUE(train.running());
  train.signal(SIGHUP);
  std::this_thread::sleep_for(100ms);
  train.signal(SIGHUP);  // a closing terminal also signals its script, which passes it on
  EXPECT_EQ(train.wait(60s), 0);
  const std::string last = "step_" + std::to_string(metrics("out").back()["step"].get<int>());
  EXPECT_TRUE(fs::exists(folder_ / "out" / last / "model.safetensors")) << "a checkpoint";
  EXPECT_TRUE(fs::exists(folder_ / "out" / "report.html"));
  only.signal(SIGHUP);
  EXPECT_EQ(only.wait(60s), 0) << "the engine ends as well: " << only.output();
}

TEST_F(Train, SaysThatItsLogCouldNotBeWrittenAndTrainsAllTheSame) {
  Program only = engine("engine-0");
  Program train({"/bin/sh",
                 "-c",
                 "exec \"$@\" >/dev/full",
                 "sh",
                 BASCULE_TRAIN,
                 "--model",
                 BASCULE_DEMO_MODEL,
                 "--sync",
                 sync_,
                 "--engines",
                 url_of(only),
                 "--out",
                 (folder_ / "out").string(),
                 "--max-tokens",
                 "3",
                 "--threads",
                 "1",
                 "--eval-problems",
                 "5",
                 "--steps",
                 "1",
                 "--prompts-per-step",
                 "4",
                 "--group-size",
                 "4"},
                folder_ / "train.log");
  EXPECT_EQ(train.wait(90s), 1);
  EXPECT_THAT(train.output(), HasSubstr("bascule-train: write to stdout: No space left on device"));
  EXPECT_EQ(metrics("out").size(), 2);
  EXPECT_TRUE(fs::exists(folder_ / "out" / "step_1" / "model.safetensors"));
}

TEST_F(Train, ASecondRunLeavesTheFirstOneAlone) {
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  const std::vector<std::string> small{"--steps", "100000", "--prompts-per-step", "4", "--group-size", "4"};
  Program first = trainer(url, "out", small);
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 1 || !first.running(); }, 90s)) << first.output();
  const auto second = [&] {
    std::vector<std::string> command{BASCULE_TRAIN, "--model", BASCULE_DEMO_MODEL,        "--sync", sync_, "--engines",
                                     url,           "--out",   (folder_ / "out").string()};
    return Program(command, folder_ / "second.log");
  };
  Program beside = second();
  EXPECT_EQ(beside.wait(60s), 1);
  EXPECT_THAT(beside.output(), HasSubstr("another run, process " + std::to_string(first.pid())));
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(60s), 0) << first.output();
  const std::string lines = bytes("out/metrics.jsonl");
  Program behind = second();
  EXPECT_EQ(behind.wait(60s), 2);
  EXPECT_THAT(behind.output(), HasSubstr("expected no run in it, found metrics.jsonl"));
  EXPECT_EQ(bytes("out/metrics.jsonl"), lines);
}

TEST_F(Train, SupervisedRefusesAnOutThatExistsBeforeItTrains) {
  fs::create_directory(folder_ / "taken");
  Program train({BASCULE_TRAIN, "--supervised", "--model", BASCULE_DEMO_MODEL, "--out", (folder_ / "taken").string(),
                 "--steps", "1000000000"},
                folder_ / "train.log");
  EXPECT_EQ(train.wait(60s), 2);
  EXPECT_THAT(train.output(), HasSubstr("taken exists: a checkpoint is never overwritten"));
}

TEST_F(Train, QuotesEachEngineThatDoesNotJoin) {
  Program elsewhere = engine("engine-0", "0", {"--sync", "shm://" + (folder_ / "typo").string()});
  const std::string url = url_of(elsewhere), nobody = "http://127.0.0.1:1";
  Program train = trainer(url + "," + nobody, "out", {"--engine-timeout", "1s"});
  EXPECT_EQ(train.wait(60s), 1);
  EXPECT_THAT(train.output(), HasSubstr("engine " + url + " says HTTP 503: joining, no sender has been at " +
                                        (folder_ / "typo").string()));
  EXPECT_THAT(train.output(), HasSubstr("; engine " + nobody + " says "));
  EXPECT_FALSE(fs::exists(folder_ / "out")) << "a run that never started leaves nothing";
}

TEST_F(Train, RefusesWhatMakesNoSense) {
  const std::string url = "http://127.0.0.1:1";
  const std::string home = folder_ / "home";
  fs::create_directory(home);
  fs::permissions(home, fs::perms::owner_all);
  const Environment is_home("HOME", home.c_str());
  const fs::path no_weights = folder_ / "step_1";
  fs::create_directory(no_weights);
  fs::copy_file(fs::path(BASCULE_DEMO_MODEL) / "config.json", no_weights / "config.json");
  std::ofstream(no_weights / "trainer_state.json") << R"({"step": 1, "seed": 0, "optimizer_steps": 1})";
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{"--engines", ""}, "--engines=: give the URLs of the engines"},
      {{"--model", "Qwen/Qwen3-0.6B"}, "--model=Qwen/Qwen3-0.6B: no such folder"},
      {{"--model", folder_.string()}, "step_1 has a config.json; give that folder"},
      {{"--resume", "/nope"}, "--resume=/nope: no such folder; give a folder step_N"},
      {{"--resume", no_weights}, "neither model.safetensors"},
      {{"--task", "data", "--data", "/nope"}, "--data=/nope: No such file"},
      {{"--engines", "http://127.0.0.1:99999"}, "no port from 1 to 65535"},
      {{"--sync", "smh:///tmp/x"}, "did you mean shm?"},
      {{"--sync", "cuda-ipc:///tmp/x"}, "--sync=cuda-ipc:///tmp/x: "},
      {{"--sync", "shm://" + home},
       "--sync=shm://" + home + ": folder " + home + " is your home folder; give a folder"},
      {{"--group-size", "1"}, "give a value from 2 to 65536, as --group-size=16"},
      {{"--learning-rate", "inf"}, "give a number above 0, at most 1e+06, as --learning-rate=1e-06"},
      {{"--learning-rate", "nan"}, "give a number above 0"},
      {{"--weight-decay", "inf"}, "give a value from 0 to 1e+06"},
      {{"--temperature", "inf"}, "as --temperature=1"},
      {{"--request-timeout", "inf"}, "give a finite time above 0, as --request-timeout=60s"},
      {{"--engine-timeout", "-1s"}, "give a finite time above 0, as --engine-timeout=2m"},
      {{"--threads", "100000"}, "give a value from 0 to 1024"},
      {{"--steps", "abc"}, "expected INTEGER, as --steps=8"},
  };
  for (const auto& [flags, why] : bad) {
    Program train = trainer(url, "out", flags);
    EXPECT_EQ(train.wait(60s), 2) << why << "\n" << train.output();
    EXPECT_THAT(train.output(), HasSubstr(why));
    EXPECT_FALSE(fs::exists(folder_ / "out")) << why;
  }
  Program help({BASCULE_TRAIN, "-h"}, folder_ / "help.log");
  EXPECT_EQ(help.wait(60s), 0);
  EXPECT_THAT(help.output(), HasSubstr("--group-size=INTEGER"));
}

}  // namespace
}  // namespace bascule::test
