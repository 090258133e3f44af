// bascule-train and bascule-engine as processes on GPUs, weights over cuda-ipc: nothing of them passes through the
// host.
#include <csignal>

#include "support/devices/gpu.h"
#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;

class TrainOnGpu : public Train {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_GPUS(1);
    sync_ = "cuda-ipc://" + (folder_ / "sync").string();
  }
  Program engine_on(const std::string& device, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--device", device});
    return engine("engine-0", "0", more);
  }

  // A run of `steps` steps, whose every version the engine acknowledged.
  std::vector<nlohmann::json> train_on(const std::string& device, const Program& engine, const std::string& out,
                                       int steps, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--device", device, "--steps", std::to_string(steps), "--prompts-per-step", "8",
                             "--group-size", "8", "--save-every", "2"});
    Program train = trainer(url_of(engine), out, more);
    EXPECT_EQ(train.wait(100s), 0) << train.output() << engine.output();
    std::vector<nlohmann::json> lines = metrics(out);
    for (const nlohmann::json& line : lines) {
      EXPECT_EQ(line["reward_mean"].is_number(), line["step"] != 0) << line;
      EXPECT_EQ(line["send"]["workers"].size(), 1) << line;
      for (const nlohmann::json& worker : line["send"]["workers"]) EXPECT_EQ(worker["state"], "serving") << line;
    }
    return lines;
  }

  // The version from which its next token comes; null if it does not report one.
  static nlohmann::json served_by(const Program& engine) {
    ref::HttpClient client;
    const absl::StatusOr<ref::HttpResponse> answer = client.get(url_of(engine) + "/health", absl::Seconds(10));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && answer->status == 200 ? nlohmann::json::parse(answer->body)["version"] : nlohmann::json();
  }
};

TEST_F(TrainOnGpu, SendsEachStepsWeightsAndGoesOnFromACheckpoint) {
  Program only = engine_on("cuda");
  const std::vector<nlohmann::json> first = train_on("cuda", only, "first", 3);
  ASSERT_EQ(first.size(), 4);
  EXPECT_GE(versions_of(first, url_of(only)).back(), first[2]["version"]) << "generated with what step 2 had made";
  EXPECT_EQ(served_by(only), first.back()["version"]) << "serves what step 3 made";

  const std::vector<nlohmann::json> resumed =
      train_on("cuda", only, "resumed", 4, {"--resume", (folder_ / "first" / "step_2").string()});
  ASSERT_EQ(resumed.size(), 2) << "steps 3 and 4";
  EXPECT_EQ(resumed[0]["step"], 3);
  EXPECT_GT(resumed[0]["version"], first[3]["version"]) << "versions only grow, over restarts too";
  EXPECT_EQ(served_by(only), resumed.back()["version"]);
}

TEST_F(TrainOnGpu, CastsItsF32WeightsForAnEngineInBf16) {
  sync_ += "?wire_dtype=bf16";
  Program only = engine_on("cuda", {"--dtype", "bf16"});
  const std::vector<nlohmann::json> lines = train_on("cuda", only, "out", 2);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(served_by(only), lines.back()["version"]);
  const std::int64_t parameters = nlohmann::json::parse(bytes("out/run.json"))["parameters"];
  EXPECT_GE(lines.back()["send"]["bytes"], 2 * parameters);
  EXPECT_LT(lines.back()["send"]["bytes"], 3 * parameters) << "two bytes a weight";
}

// Engines on GPUs read some tensors as one: in place as well, or they would hold most of the weights again.
TEST_F(TrainOnGpu, LetsTheEngineReadItsOwnWeightsAndNoCopy) {
  sync_ += "?slots=1&digest=always";
  Program only = engine_on("cuda", {"--verbose"});
  const std::vector<nlohmann::json> first = train_on("cuda", only, "first", 3);
  ASSERT_EQ(first.size(), 4);
  EXPECT_EQ(served_by(only), first.back()["version"]);
  const std::vector<nlohmann::json> resumed =
      train_on("cuda", only, "resumed", 4, {"--resume", (folder_ / "first" / "step_2").string()});
  ASSERT_EQ(resumed.size(), 2) << "steps 3 and 4";
  EXPECT_EQ(served_by(only), resumed.back()["version"]);
  for (const char* log : {"first.log", "resumed.log"})
    EXPECT_EQ(bytes(log).find("it copies them"), std::string::npos) << bytes(log);

  ref::HttpClient client;
  const auto says = [&](const Program& engine) {
    const auto answer =
        client.post_json(url_of(engine) + "/v1/completions",
                         R"({"prompt": ["45+33=", "07+30=", "12+29="], "temperature": 0})", absl::Seconds(60));
    EXPECT_TRUE(answer.ok() && answer->status == 200);
    std::vector<std::string> texts;
    for (const nlohmann::json& choice : nlohmann::json::parse(answer->body)["choices"]) texts.push_back(choice["text"]);
    return texts;
  };
  const Program alone =
      engine("alone", "0", {"--device", "cuda", "--sync=", "--model", (folder_ / "resumed" / "step_4").string()});
  EXPECT_EQ(says(only), says(alone)) << "as the checkpoint";
}

TEST_F(TrainOnGpu, HasTheMemoryOfAnEngineThatSleepsMeanwhile) {
  const auto free_bytes = [] {
    std::size_t free = 0, all = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
    return free;
  };
  constexpr std::size_t kCache = std::size_t{8} << 30, kOthers = std::size_t{2} << 30;
  Program only = engine_on("cuda", {"--cache-bytes", std::to_string(kCache)});
  const std::string url = url_of(only);
  const std::size_t awake = free_bytes();
  Program train = trainer(url, "out", {"--device", "cuda", "--colocate", "--steps", "100000"});
  EXPECT_TRUE(eventually([&] { return free_bytes() > awake + kCache - kOthers; }, 60s)) << train.output();
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 3 || !train.running(); }, 60s)) << train.output();
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(60s), 0) << train.output();
  EXPECT_LT(free_bytes(), awake + kOthers) << "it has its cache again";
  EXPECT_EQ(served_by(only), metrics("out").back()["version"]);
}

class TrainOnTwoGpus : public TrainOnGpu {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_GPUS(2);
    TrainOnGpu::SetUp();
  }
};

TEST_F(TrainOnTwoGpus, SendsToAnEngineOnThePeer) {
  Program only = engine_on("cuda:1");
  const std::vector<nlohmann::json> lines = train_on("cuda:0", only, "out", 2);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(served_by(only), lines.back()["version"]);
}

}  // namespace
}  // namespace bascule::test
