// bascule-train and bascule-engine as processes: a run that loses an engine, one that is resumed, and one after another
// over files.
#include <csignal>

#include "train_fixture.h"
#include "trainer_ref/http_client.h"

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
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > lost_at + 2; }, 60s)) << "goes on with one engine\n"
                                                                                    << train.output();
  const std::vector<std::uint64_t> before = versions_of(metrics("out"), url);
  ASSERT_FALSE(before.empty());

  second = engine("engine-1", url.substr(url.rfind(':') + 1));
  const auto serves_again = [&] { return versions_of(metrics("out"), url).size() > before.size() + 2; };
  ASSERT_TRUE(eventually(serves_again, 60s)) << train.output() << second.output();
  EXPECT_GT(versions_of(metrics("out"), url).back(), before.back()) << "the newest, not what it had";

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
  EXPECT_THAT(train.output(), HasSubstr("--resume=" + (folder_ / "out" / last).string() + " goes on"));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "report.html"));
  EXPECT_THAT(train.output(), HasSubstr("engine " + url + " is back"));
}

TEST_F(Train, GoesOnExactlyFromACheckpoint) {
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  // Without importance weights, of which rounding in the engine's batches would be a part, every bit must agree.
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
  EXPECT_GT(second.front()["version"], first.back()["version"]) << "versions only grow, over runs too";
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

  // The last one to be put to sleep: the trainer is about to train, and its send will be the next to need an engine.
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
  EXPECT_EQ(saved[0]["step"], saved[0]["optimizer_steps"]) << "the number of the weights that it holds";
}

TEST_F(Train, NamesNoCheckpointThatItHasNot) {
  const std::string nobody = "http://127.0.0.1:1";
  Program train = trainer(nobody, "out", {"--engine-timeout", "10m"});
  ASSERT_TRUE(eventually([&] { return train.output().find("waiting for") != std::string::npos; }, 60s));
  train.signal(SIGTERM);  // heard at once, however long engines may take
  EXPECT_EQ(train.wait(60s), 0) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("stopped after step 0; nothing was saved"));
}

TEST_F(Train, RefusesWhatMakesNoSense) {
  Program no_engines = Program({BASCULE_TRAIN, "--model", "m", "--out", "o"}, folder_ / "a.log");
  EXPECT_EQ(no_engines.wait(30s), 2);
  EXPECT_THAT(no_engines.output(), HasSubstr("--engines=: give the URLs of the engines"));
  Program hub_name = trainer("http://127.0.0.1:1", "out", {"--model", "Qwen/Qwen3-0.6B"});
  EXPECT_EQ(hub_name.wait(30s), 1);
  EXPECT_THAT(hub_name.output(), HasSubstr("Qwen/Qwen3-0.6B"));
}

}  // namespace
}  // namespace bascule::test
