// bascule-engine as a process that computes on the GPU, with weights from a trainer in this process: read in place if
// they are there, else through copies on the device.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "engine_fixture.h"
#include "support/devices/torch_gpu.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::test {
namespace {

using ::testing::Each;

class EngineGpu : public EngineProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { BASCULE_NEEDS_TORCH_GPU(); }

  void start_trainer() {
    weights_ = *ref::read_weights(checkpoint(), *ref::read_config(checkpoint()), DType::kF32);
    for (auto& [name, tensor] : weights_) tensor = tensor.to(*torch_gpu());
    sender_.emplace(*Sender::listen({.endpoint = endpoint()}));
    ASSERT_TRUE(sender_->register_model(libtorch::tensors({weights_.begin(), weights_.end()})).ok());
  }
  std::string endpoint() const { return std::string(GetParam()) + "://" + folder_.string() + "/sync"; }
  void send() {
    ASSERT_TRUE(sender_->wait_for_workers(1, absl::Seconds(60)).ok());
    const absl::StatusOr<SendReport> report = sender_->send();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->complete());
  }
  int post(const std::string& path) { return client_.post_json(url_ + path, "", absl::Seconds(60))->status; }

  const char* kGreedy =
      R"({"prompt": [1,2,3,4,5,6,7], "temperature": 0, "max_tokens": 40, "ignore_eos": true, "n": 3})";
  ref::WeightMap weights_;
  std::optional<Sender> sender_;
};

TEST_P(EngineGpu, FlipsAndSaysWhatTheCheckpointSays) {
  const Program own = serve({"--device", "cuda"});
  const Json expected = choices(kGreedy);
  EXPECT_EQ(Json::parse(get("/health").body)["device"], "cuda:0");

  start_trainer();
  const Program engine = serve({"--device", "cuda:0", "--sync", endpoint()});
  send();
  EXPECT_EQ(choices(kGreedy)[2]["token_ids"], expected[2]["token_ids"]);
  choices(kGreedy);  // a graph is recorded when its shape occurs again
  weights_.at("model.norm.weight").mul_(-1);
  send();
  choices(kGreedy);
  const Json turned = choices(kGreedy);
  EXPECT_NE(turned[2]["token_ids"], expected[2]["token_ids"]);
  EXPECT_THAT(turned[2]["versions"].get<std::vector<Version>>(), Each(sender_->version()));
  const double recorded = metric("graphs_recorded_total");
  EXPECT_GT(recorded, 0);
  weights_.at("model.norm.weight").mul_(-1);
  send();
  EXPECT_EQ(choices(kGreedy)[2]["token_ids"], expected[2]["token_ids"]);
  EXPECT_EQ(metric("graphs_recorded_total"), recorded) << "a slot that it knows";
}

TEST_P(EngineGpu, AcksWhileItSleeps) {
  start_trainer();
  const Program engine = serve({"--device", "cuda", "--sync", endpoint()});
  send();
  const Json before = choices(kGreedy);
  ASSERT_EQ(post("/sleep"), 200);
  weights_.at("model.norm.weight").mul_(-1);
  send();
  EXPECT_EQ(metric("version"), static_cast<double>(sender_->version()));
  ASSERT_EQ(post("/wake_up"), 200);
  EXPECT_NE(choices(kGreedy)[0]["token_ids"], before[0]["token_ids"]);
}

using EngineMemory = EngineProgramTest;
TEST_F(EngineMemory, IsTheShareOfTheGpuThatItIsTold) {
  BASCULE_NEEDS_TORCH_GPU();
  const auto used = [] {
    const auto [free, total] = at::getDeviceAllocator(at::kCUDA)->getMemoryInfo(0);
    return static_cast<double>(total - free) / static_cast<double>(total);
  };
  const double before = used();
  const Program engine = serve({"--device", "cuda:0", "--cache-bytes", "0", "--gpu-memory-utilization", "0.3"});
  EXPECT_GT(used() - before, 0.25);
  EXPECT_LT(used() - before, 0.31);
  Program second = run({"--model", checkpoint().string(), "--device", "cuda:0", "--listen", "127.0.0.1:0",
                        "--gpu-memory-utilization", "0.9"});
  EXPECT_TRUE(eventually([&] { return !second.running(); }, kPatience));
  EXPECT_THAT(second.output(), ::testing::HasSubstr("--gpu-memory-utilization=0.9: cuda:0 has "));
}

INSTANTIATE_TEST_SUITE_P(Schemes, EngineGpu, ::testing::Values("cuda-ipc", "shm", "memmap"), [](const auto& info) {
  return std::string(info.param) == "cuda-ipc" ? "CudaIpc" : std::string(info.param) == "shm" ? "Shm" : "Memmap";
});

}  // namespace
}  // namespace bascule::test
