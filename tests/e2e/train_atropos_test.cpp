// bascule-train with rollouts of an environment of Atropos, which samples with bascule-engine.
#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Of eight steps.
double mean_reward(const std::vector<nlohmann::json>& lines, std::size_t from) {
  double sum = 0;
  for (std::size_t i = from; i < from + 8; ++i) sum += lines[i]["reward_mean"].get<double>() / 8;
  return sum;
}

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
  EXPECT_GT(mean_reward(lines, 23), mean_reward(lines, 1) + 0.1) << train.output();
  EXPECT_LT(lines[1]["importance"]["capped"].get<double>(), 0.05) << "the engine's probabilities are the trainer's";
}

// Environments name no adapter: the engine must answer with the one that is trained.
TEST_F(Train, LearnsAnAdapterFromEnvironmentsOfAtropos) {
  const auto serve = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> command{
        BASCULE_ENGINE, "--model",     BASCULE_DEMO_MODEL, "--adapter", "policy=" + sync_, "--worker", name,
        "--listen",     "127.0.0.1:0", "--threads",        "1"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / (name + ".log"));
  };
  const auto flags = [](const Program& server) {
    return std::vector<std::string>{"--rollouts",
                                    "atropos:" + url_of(server),
                                    "--lora-rank",
                                    "8",
                                    "--learning-rate",
                                    "4e-3",
                                    "--prompts-per-step",
                                    "32",
                                    "--group-size",
                                    "8",
                                    "--max-tokens",
                                    "10",
                                    "--steps",
                                    "12"};
  };
  {
    const Program base = serve("engine-0", {});
    const Program server({BASCULE_ATROPOS_ENVIRONMENT, url_of(base), "256"}, folder_ / "server-0.log");
    Program train = trainer(url_of(base), "refused", flags(server));
    EXPECT_EQ(train.wait(60s), 1);
    EXPECT_THAT(train.output(), HasSubstr("--active-adapter=policy"));
  }
  const Program engine = serve("engine-1", {"--active-adapter", "policy"});
  const Program server({BASCULE_ATROPOS_ENVIRONMENT, url_of(engine), "256"}, folder_ / "server-1.log");
  Program train = trainer(url_of(engine), "out", flags(server));
  EXPECT_EQ(train.wait(180s), 0) << train.output() << server.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 13U) << train.output();
  EXPECT_NEAR(lines[12]["importance"]["mean"].get<double>(), 1.0, 1e-4) << "sampled by the adapter as it is trained";
}

// As that trainer's scripts do: the engine writes a file, and the trainer finds it.
TEST_F(Train, FindsTheEngineByItsBridgeFile) {
  const std::string folder = "LOGDIR=" + folder_.string();
  const std::filesystem::path file = folder_ / "vllm_bridge_config.json";
  const auto train = [&](const std::string& out, const Program& server) {
    return Program({"/usr/bin/env", folder, BASCULE_TRAIN, "--model=" BASCULE_DEMO_MODEL,
                    "--rollouts=atropos:" + url_of(server), "--out=" + (folder_ / out).string(), "--max-tokens=10",
                    "--group-size=8", "--threads=1", "--steps=2", "--batch-timeout=60s"},
                   folder_ / (out + ".log"));
  };
  Program engine({"/usr/bin/env", folder, "VLLM_ENABLE_SHARED_WEIGHTS=1", BASCULE_ENGINE, "--model=" BASCULE_DEMO_MODEL,
                  "--sync=" + sync_, "--listen=127.0.0.1:0", "--threads=1"},
                 folder_ / "engine.log");
  const Program server({BASCULE_ATROPOS_ENVIRONMENT, url_of(engine), "256"}, folder_ / "server.log");
  ASSERT_TRUE(std::filesystem::exists(file));
  const nlohmann::json bridge = nlohmann::json::parse(bytes("vllm_bridge_config.json"));
  EXPECT_EQ(bridge["single_copy_enabled"], false) << "what the other trainer asks first";
  EXPECT_EQ(bridge["param_mappings"]["model.norm.weight"]["shape"], nlohmann::json({96}));
  Program run = train("out", server);
  EXPECT_EQ(run.wait(120s), 0) << run.output();
  EXPECT_EQ(metrics("out").size(), 3U);
  engine.signal(SIGTERM);
  EXPECT_EQ(engine.wait(60s), 0);
  EXPECT_FALSE(std::filesystem::exists(file));

  Program without = train("without", server);
  EXPECT_EQ(without.wait(60s), 2);
  EXPECT_THAT(without.output(), HasSubstr(file.string() + ", vllm_bridge_config.json, /tmp/atropos_bridge/"));
  std::ofstream(file) << R"({"single_copy_enabled": true, "ipc_handles": {"model.norm.weight": {"device_index": 0}}})";
  Program other = train("other", server);
  EXPECT_EQ(other.wait(60s), 2);
  EXPECT_THAT(other.output(), HasSubstr("whose weights a trainer writes while they are read"));
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
