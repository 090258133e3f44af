// bascule-train with rollouts of an environment of Atropos, which samples with bascule-engine.
#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST_F(Train, LearnsFromEnvironmentsOfAtropos) {
  const Program engine = this->engine("engine-0");
  const std::string url = url_of(engine);
  const Program server({BASCULE_ATROPOS_ENVIRONMENT, url, "256"}, folder_ / "server.log");
  Program train = trainer(url, "out",
                          {"--rollouts", "atropos:" + url_of(server), "--prompts-per-step", "32", "--group-size", "8",
                           "--max-tokens", "10", "--steps", "30"});
  EXPECT_EQ(train.wait(180s), 0) << train.output() << server.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 31U) << train.output();
  const auto reward = [&](std::size_t from) {
    double sum = 0;
    for (std::size_t i = from; i < from + 8; ++i) sum += lines[i]["reward_mean"].get<double>() / 8;
    return sum;
  };
  EXPECT_GT(reward(23), reward(1) + 0.1) << train.output();
  EXPECT_LT(lines[1]["importance_capped"], 0.05) << "the engine's probabilities are the trainer's";
}

TEST_F(Train, NamesFlagsThatEnvironmentsOfAtroposDecide) {
  for (const auto& [flag, words] :
       {std::pair(std::string("--rollouts=elsewhere"), "atropos:http://"), {"--rollouts=atropos:ftp://x", "http://"}}) {
    Program train = trainer("http://127.0.0.1:1", "out", {flag});
    EXPECT_EQ(train.wait(60s), 2);
    EXPECT_THAT(train.output(), HasSubstr(words));
  }
  Program train = trainer("http://127.0.0.1:1", "out", {"--rollouts=atropos:http://127.0.0.1:2", "--reward=finished"});
  EXPECT_EQ(train.wait(60s), 2);
  EXPECT_THAT(train.output(), HasSubstr("--reward=finished: with --rollouts=atropos:"));
}

}  // namespace
}  // namespace bascule::test
