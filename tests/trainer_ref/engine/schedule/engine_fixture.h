// An engine with a simulated runner, and the requests of tests.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "simulated_runner.h"
#include <bascule/trainer_ref/engine/schedule/engine.h>

namespace bascule::ref {

inline CompletionRequest request_of(std::vector<std::int64_t> prompt, std::int64_t max_tokens, std::int64_t n = 1) {
  CompletionRequest request;
  request.prompts = {std::move(prompt)};
  request.max_tokens = max_tokens;
  request.n = n;
  return request;
}

// Clients see the same whether or not the runner runs ahead.
inline std::string name_of_ahead(const ::testing::TestParamInfo<SimulatedRunner::Ahead>& info) {
  return info.param == SimulatedRunner::Ahead::kYes ? "Ahead" : "StepByStep";
}

class EngineTest : public ::testing::TestWithParam<SimulatedRunner::Ahead> {
 protected:
  void start(EngineOptions options = {}) {
    engine_ = std::make_unique<Engine>(std::move(options));
    auto runner = std::make_unique<SimulatedRunner>(engine_->options().blocks, GetParam());
    runner_ = runner.get();
    engine_->start(std::move(runner));
  }
  void TearDown() override {
    if (runner_ != nullptr) runner_->open(true);
  }
  void serve(Version version) {
    const std::uint64_t flips = engine_->stats().flips;
    runner_->serve(version);
    engine_->wake();
    wait_until([&] { return engine_->stats().flips > flips; });
  }
  std::future<Completion> ask(CompletionRequest request, absl::StatusOr<RequestId>* id = nullptr) {
    const auto promise = std::make_shared<std::promise<Completion>>();
    std::future<Completion> future = promise->get_future();
    const absl::StatusOr<RequestId> submitted = engine_->submit(
        std::move(request), [promise](Completion completion) { promise->set_value(std::move(completion)); });
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    if (id != nullptr) *id = submitted;
    return future;
  }
  std::future<absl::Status> sleep(bool abort = false) {
    const auto promise = std::make_shared<std::promise<absl::Status>>();
    engine_->sleep(abort, [promise](const absl::Status& status) { promise->set_value(status); });
    return promise->get_future();
  }
  std::future<absl::Status> wake_up() {
    const auto promise = std::make_shared<std::promise<absl::Status>>();
    engine_->wake_up([promise](const absl::Status& status) { promise->set_value(status); });
    return promise->get_future();
  }
  std::string refusal() {
    return std::string(engine_->submit(request_of({1}, 1), [](Completion) {}).status().message());
  }
  template <typename Condition>
  static void wait_until(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::unique_ptr<Engine> engine_;
  SimulatedRunner* runner_ = nullptr;  // the engine's
};

}  // namespace bascule::ref
