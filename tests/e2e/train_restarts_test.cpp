// bascule-train --sync=none: engines that get weights by checkpoints and restarts.
#include <gmock/gmock.h>

#include <regex>

#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class TrainRestarts : public Train {
 protected:
  Program train(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> command{BASCULE_TRAIN,
                                     "--model=" BASCULE_DEMO_MODEL,
                                     "--sync=none",
                                     "--spawn-engines=1",
                                     "--out=" + (folder_ / out).string(),
                                     "--max-tokens=3",
                                     "--learning-rate=3e-3",
                                     "--eval-problems=20",
                                     "--prompts-per-step=16",
                                     "--group-size=8",
                                     "--request-timeout=20s"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / (out + ".log"));
  }
  static std::ptrdiff_t starts(const std::string& output) {
    const std::regex line("\\[engine-0\\] listening on ");
    return std::distance(std::sregex_iterator(output.begin(), output.end(), line), std::sregex_iterator());
  }
  // How far the engine's probabilities are from the ones that the step's first weights give.
  static double distance(const nlohmann::json& line) { return std::abs(line["importance"]["mean"].get<double>() - 1); }
};

TEST_F(TrainRestarts, EnginesServeTheNewestCheckpoint) {
  Program run = train("out", {"--restart-every=2", "--steps=5"});
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  EXPECT_EQ(starts(run.output()), 4) << "at the start, after steps 2 and 4, and after the last\n" << run.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 6U);
  for (const std::size_t fresh : {1, 3, 5}) EXPECT_LT(distance(lines[fresh]), 1e-4) << "step " << fresh;
  for (const std::size_t stale : {2, 4}) EXPECT_GT(distance(lines[stale]), 1e-4) << "step " << stale;
  EXPECT_GT(lines[2]["send"]["seconds"]["deliver"].get<double>(), lines[2]["send"]["seconds"]["pack"].get<double>());
  EXPECT_GT(lines[2]["send"]["bytes"].get<std::uint64_t>(), 1'000'000U) << "of the demo's f32 checkpoint";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / "engines")) << "no checkpoint for engines is left";
}

// A step that changed nothing does not hide the changes of those before it.
TEST_F(TrainRestarts, EnginesServeTheNewestCheckpointAfterAStepThatChangedNothing) {
  const std::filesystem::path program = folder_ / "reward.py";
  std::ofstream(program) << R"(import json, sys
step = 0
for line in sys.stdin:
    request = json.loads(line)
    count = len(request["completions"])
    step += count == 128  # else it is an evaluation
    print(json.dumps({"id": request["id"], "rewards": [0 if step == 2 else i % 2 for i in range(count)]}), flush=True)
)";
  Program run = train(
      "out", {"--restart-every=2", "--steps=3", "--eval-problems=1", "--reward=exec:python3 " + program.string()});
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  EXPECT_EQ(starts(run.output()), 3) << "at the start, after step 2, and after the last\n" << run.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[2]["updates"], 0) << "no update in the second step";
  EXPECT_LT(distance(lines[3]), 1e-4);
}

TEST_F(TrainRestarts, EnginesServeTheNewestAdapter) {
  Program run = train("out", {"--restart-every=1", "--steps=3", "--lora-rank=8"});
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  EXPECT_EQ(starts(run.output()), 4) << run.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 4U);
  for (std::size_t step = 1; step < lines.size(); ++step) EXPECT_LT(distance(lines[step]), 1e-4) << "step " << step;
  EXPECT_LT(lines[1]["send"]["bytes"].get<std::uint64_t>(), 1'000'000U) << "of the adapter alone";
}

TEST_F(TrainRestarts, NamesTheFlagsThatItNeeds) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{}, "--restart-every"},
      {{"--restart-every=1", "--spawn-engines=0", "--engines=http://127.0.0.1:1"}, "--spawn-engines=1"},
      {{"--restart-every=1", "--sync-every=2"}, "--sync-every"},
      {{"--restart-every=1", "--max-staleness=1"}, "--max-staleness"},
      {{"--restart-every=1", "--sync="}, "--restart-every=1"},
      {{"--restart-every=1", "--lora-rank=8", "--lora-sync=merged"}, "--lora-sync"}};
  for (const auto& [flags, word] : wrong) {
    Program run = train("wrong", flags);
    EXPECT_EQ(run.wait(60s), 2) << word;
    EXPECT_THAT(run.output(), HasSubstr(word));
  }
}

TEST_F(TrainRestarts, AKilledRunIsRepeated) {
  {
    Program run = train("out", {"--restart-every=1", "--steps=200", "--save-every=1"});
    ASSERT_TRUE(eventually([&] { return metrics("out").size() > 2; }, 120s)) << run.output();
    run.kill();
  }
  ASSERT_TRUE(std::filesystem::exists(folder_ / "out" / "engines"));
  Program run = train("again", {"--restart-every=1", "--resume=" + (folder_ / "out" / "step_1").string(), "--steps=3"});
  ASSERT_EQ(run.wait(180s), 0) << run.output();
  const std::vector<nlohmann::json> lines = metrics("again");
  ASSERT_EQ(lines.size(), 2U) << run.output();
  EXPECT_LT(distance(lines[0]), 1e-4) << "the engines began with the resumed weights";
}

}  // namespace
}  // namespace bascule::test
