#include <bascule/trainer_ref/grpo/rollout/request_queue.h>

#include <gmock/gmock.h>

#include <future>

namespace bascule::ref {
namespace {

using Outcome = RequestQueue::Outcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Queue : public ::testing::Test {
 protected:
  static std::vector<RolloutRequest> requests(int count, int completions) {
    return std::vector<RolloutRequest>(static_cast<std::size_t>(count),
                                       RolloutRequest{.prompt = {1}, .completions = completions});
  }
  // Whether this engine takes a request without waiting. If not, its thread waits until the queue is cancelled.
  bool takes(std::size_t engine) {
    auto taken = std::async(std::launch::async, [this, engine] { return queue_.take(engine); });
    const bool at_once = taken.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
    if (at_once)
      held_.push_back(*taken.get());
    else
      waiting_.push_back(std::move(taken));
    return at_once;
  }
  bool settle(std::size_t engine, Outcome outcome) {
    RequestQueue::Job job = std::move(held_.front());
    held_.erase(held_.begin());
    return queue_.settle(engine, std::move(job), {.outcome = outcome, .url = "http://a", .why = "ill"});
  }
  ~Queue() override { queue_.cancel(); }

  std::string log_;
  RequestQueue queue_{2, 4, [this](const std::string& line) { log_ += line; }};
  std::vector<RequestQueue::Job> held_;
  std::vector<std::future<std::optional<RequestQueue::Job>>> waiting_;
};

TEST_F(Queue, AnEngineTakesRequestsForTwoOfItsBatches) {
  queue_.set_up(1, false);
  const auto call = queue_.add(requests(5, 3));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(takes(0)) << "6 completions are in flight, fewer than 8";
  EXPECT_FALSE(takes(0)) << "9 are";
  queue_.set_batch(0, 8);
  EXPECT_EQ(waiting_.back().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(Queue, TheEngineWithTheLeastUnderWayOfItsBatchIsNext) {
  queue_.set_batch(1, 8);
  const auto call = queue_.add(requests(4, 1));
  EXPECT_TRUE(takes(0));
  EXPECT_FALSE(takes(0)) << "engine 1 has nothing to do";
  EXPECT_TRUE(takes(1));
  EXPECT_TRUE(takes(1)) << "1 of 8 is less than 1 of 4";
  EXPECT_EQ(waiting_.back().wait_for(std::chrono::seconds(10)), std::future_status::ready) << "2 of 8 is not";
}

TEST_F(Queue, AnEngineInDoubtTakesNothingAndKeepsNobodyWaiting) {
  const auto call = queue_.add(requests(3, 1));
  EXPECT_TRUE(takes(1));
  EXPECT_TRUE(settle(1, Outcome::kUnreached)) << "its caller must probe the engine";
  EXPECT_FALSE(takes(1));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(queue_.set_up(1, false)) << "it has gone down";
  EXPECT_FALSE(queue_.set_up(1, false));
  EXPECT_TRUE(queue_.set_up(1, true));
  EXPECT_EQ(waiting_.back().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(Queue, OneThatIsLostGoesToAnotherEngineAndIsGivenUpTheSecondTime) {
  const auto call = queue_.add(requests(1, 1));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(settle(0, Outcome::kLost));
  queue_.set_up(0, true);
  EXPECT_FALSE(takes(0)) << "the other one is up";
  EXPECT_TRUE(takes(1));
  EXPECT_TRUE(settle(1, Outcome::kLost));
  EXPECT_TRUE(queue_.wait(*call, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(call->last_loss, "http://a: ill");
  EXPECT_THAT(log_, HasSubstr("a request was lost twice"));
}

TEST_F(Queue, WhatIsAskedFirstGoesBeforeWhatWaits) {
  const auto later = queue_.add(requests(1, 1));
  const auto first = queue_.add(requests(2, 1), RequestQueue::Place::kFirst);
  queue_.set_up(1, false);
  for (const auto& call : {first, first, later}) {
    ASSERT_TRUE(takes(0));
    EXPECT_EQ(held_.back().call, call);
  }
  EXPECT_EQ(held_[0].request, 0) << "in their order";
}

TEST_F(Queue, AClosedCallLeavesNothingBehind) {
  const auto call = queue_.add(requests(2, 1));
  EXPECT_TRUE(takes(0));
  auto taken = std::async(std::launch::async, [this] { queue_.wait_until_taken(); });
  EXPECT_EQ(queue_.close(call), 2);
  taken.get();
  EXPECT_FALSE(settle(0, Outcome::kAnswered)) << "no caller waits for it any longer";
  EXPECT_FALSE(takes(1));
}

}  // namespace
}  // namespace bascule::ref
