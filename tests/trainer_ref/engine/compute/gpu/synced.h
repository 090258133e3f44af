// A trainer on the GPU whose weights an engine in this process reads in place.
#pragma once

#include <stdlib.h>

#include <optional>

#include "support.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::ref {

class SyncedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_TORCH_GPU();
    std::string name = (std::filesystem::temp_directory_path() / "bascule-gpu-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    const std::filesystem::path checkpoint = std::filesystem::path(BASCULE_FIXTURES) / "qwen3";
    config_ = one_thread(*read_config(checkpoint));
    trained_ = *read_weights(checkpoint, config_, DType::kF32);
    for (auto& [tensor_name, tensor] : trained_) tensor = tensor.to(*test::torch_gpu());
  }
  void TearDown() override {
    sender_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string endpoint() const { return "cuda-ipc://" + folder_.string() + "/sync"; }
  void start_sender() {
    sender_.emplace(*Sender::listen({.endpoint = endpoint()}));
    ASSERT_TRUE(sender_->register_model(libtorch::tensors({trained_.begin(), trained_.end()})).ok());
  }
  // Recorded as graphs, and read from the slots.
  TestPlace synced(std::function<void()> on_pending = {}) const {
    TestPlace where = on_gpu(Graphs::kOn);
    where.weights = *ServedWeights::from_sender(config_, DType::kF32,
                                                {.endpoint = endpoint(),
                                                 .worker = "engine",
                                                 .on_pending = std::move(on_pending),
                                                 .log = {},
                                                 .place = where.place});
    return where;
  }
  // Sets other weights, with which the engine generates other tokens.
  void train(int step) {
    at::manual_seed(static_cast<std::uint64_t>(step));
    for (auto& [name, tensor] : trained_) tensor.add_(at::randn(tensor.sizes()).to(tensor.device()), 0.05);
  }

  std::filesystem::path folder_;
  ModelConfig config_;
  WeightMap trained_;
  std::optional<Sender> sender_;
};

}  // namespace bascule::ref
