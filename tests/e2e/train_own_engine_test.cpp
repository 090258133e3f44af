// bascule-train --engines=none: one process, which generates with its own weights.
#include <gmock/gmock.h>

#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class TrainOwnEngine : public Train {
 protected:
  Program train(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> command{BASCULE_TRAIN,        "--model=" BASCULE_DEMO_MODEL,
                                     "--engines=none",     "--out=" + (folder_ / out).string(),
                                     "--max-tokens=3",     "--learning-rate=3e-3",
                                     "--eval-problems=20", "--prompts-per-step=16",
                                     "--group-size=8",     "--steps=6"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / (out + ".log"));
  }
  // Each step's completions are of the weights that it begins with.
  void expect_newest(const std::string& out) const {
    const std::vector<nlohmann::json> lines = metrics(out);
    ASSERT_EQ(lines.size(), 7U);
    for (std::size_t step = 1; step < lines.size(); ++step) {
      EXPECT_NEAR(lines[step]["importance"]["mean"].get<double>(), 1, 1e-4) << "step " << step;
      EXPECT_EQ(lines[step]["dropped"], 0) << "step " << step;
      EXPECT_EQ(lines[step]["version"], lines[step - 1]["version"].get<int>() + 1) << "step " << step;
    }
  }
};

TEST_F(TrainOwnEngine, GeneratesWithTheWeightsThatItTrains) {
  Program run = train("out", {});
  ASSERT_EQ(run.wait(120s), 0) << run.output();
  expect_newest("out");
}

TEST_F(TrainOwnEngine, GeneratesWithTheAdapterThatItTrains) {
  Program run = train("out", {"--lora-rank=8", "--lora-dropout=0.1"});
  ASSERT_EQ(run.wait(120s), 0) << run.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 7U);
  for (std::size_t step = 1; step < lines.size(); ++step)
    EXPECT_EQ(lines[step]["version"], step) << "an adapter's first version is 0";
  Program plain = train("plain", {"--lora-rank=8"});
  ASSERT_EQ(plain.wait(120s), 0) << plain.output();
  expect_newest("plain");
}

// The same random numbers, the same weights: only where completions are made differs.
TEST_F(TrainOwnEngine, LearnsWhatARunWithAnEngineLearns) {
  Program own = train("own", {"--threads=1"});
  ASSERT_EQ(own.wait(120s), 0) << own.output();
  Program apart = train("apart", {"--threads=1", "--engines=", "--spawn-engines=1"});
  ASSERT_EQ(apart.wait(120s), 0) << apart.output();
  const std::vector<nlohmann::json> a = metrics("own"), b = metrics("apart");
  ASSERT_EQ(a.size(), b.size());
  EXPECT_NEAR(a.back()["reward_mean"].get<double>(), b.back()["reward_mean"].get<double>(), 0.1);
  EXPECT_EQ(a[1]["reward_mean"], b[1]["reward_mean"]) << "the first step's completions";
}

// Any process of this host could use the engine otherwise, or put it to sleep.
TEST_F(TrainOwnEngine, AsksForTheKeyOfTheEnvironment) {
  Program run({"/usr/bin/env", "BASCULE_API_KEY=secret", BASCULE_TRAIN, "--model=" BASCULE_DEMO_MODEL, "--engines=none",
               "--out=" + (folder_ / "out").string(), "--max-tokens=3", "--eval-problems=20", "--steps=500"},
              folder_ / "out.log");
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 1; }, 60s)) << run.output();
  const std::string url = nlohmann::json::parse(bytes("out/run.json"))["engines"][0].get<std::string>() + "/v1/models";
  ref::HttpClient client;
  const absl::StatusOr<ref::HttpResponse> without = client.get(url, absl::Seconds(60));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->status, 401) << without->body;
  client.authorize("secret");
  const absl::StatusOr<ref::HttpResponse> with = client.get(url, absl::Seconds(60));
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->status, 200) << with->body;
}

TEST_F(TrainOwnEngine, NamesFlagsThatHaveNoMeaning) {
  for (const auto& [flag, word] : {std::pair("--sync=shm:///tmp/x", "--sync"),
                                   {"--sync-every=2", "--sync-every"},
                                   {"--max-staleness=1", "--max-staleness"},
                                   {"--colocate", "--colocate"},
                                   {"--spawn-engines=1", "--engines"},
                                   {"--rollouts=atropos:http://127.0.0.1:1", "--spawn-engines=1"}}) {
    Program run = train("wrong", {flag});
    EXPECT_EQ(run.wait(60s), 2) << flag;
    EXPECT_THAT(run.output(), HasSubstr(word));
  }
}

TEST_F(TrainOwnEngine, AStopEndsItWithACheckpoint) {
  Program run = train("out", {"--steps=500"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 2; }, 60s)) << run.output();
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(60s), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("continue with --resume="));
}

}  // namespace
}  // namespace bascule::test
