// Sends of weights other than the registered ones, and update_weights(), after which no wait is due.
#include "conformance/suite.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::_;
using testing::HasSubstr;

TEST_P(Conformance, OtherWeightsAreSentAndTheRegisteredStayRegistered) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  TestModel other;
  other.place_on(device());
  other.step(++generation_);
  const absl::StatusOr<SendReport> report = sender_->send(other.source());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
  expect_newest({a.get(), b.get()});
  other.step(++generation_);
  ASSERT_THAT(sender_->send_async(other.source(), {"a"}), IsOk());
  ASSERT_THAT(sender_->wait_async(patience()), IsOk());
  expect_newest({a.get()});
  send_complete(2);  // model_ again
  expect_newest({a.get(), b.get()});
}

// All but the last tensor, lm_head.weight, which is tied.
class WithoutTheTied final : public TensorSource {
 public:
  explicit WithoutTheTied(std::unique_ptr<TensorSource> all) : all_(std::move(all)) {}
  absl::StatusOr<std::span<const TensorView>> views() override {
    const absl::StatusOr<std::span<const TensorView>> all = all_->views();
    if (!all.ok()) return all.status();
    EXPECT_EQ(all->back().name, "lm_head.weight");
    return all->first(all->size() - 1);
  }
  Stream stream() const override { return all_->stream(); }

 private:
  std::unique_ptr<TensorSource> all_;
};

// Both have the same segments, but different numbers of tensors.
TEST_P(Conformance, OtherWeightsMayLeaveOutATiedNameThatTheSendBeforeGave) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  TestModel other;
  other.place_on(device());
  for (const bool tied : {true, false, true}) {
    other.step(++generation_);
    std::unique_ptr<TensorSource> source = other.source();
    if (!tied) source = std::make_unique<WithoutTheTied>(std::move(source));
    ASSERT_THAT(sender_->send(std::move(source)), IsOk());
    expect_newest({a.get()});
  }
}

TEST_P(Conformance, OtherWeightsOfAnotherModelAreRefusedAndNothingIsLost) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  TestModel larger(ModelSize::kTiny);
  larger.place_on(device());
  larger.step(100);
  EXPECT_THAT(sender_->send(larger.source()), StatusIs(StatusCode::kInvalidArgument, HasSubstr("was registered as")));
  const float value = 1;
  EXPECT_THAT(sender_->send(host_tensors({{{"nowhere", DType::kF32, {1}}, &value}})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not among the weights")));
  EXPECT_EQ(send_complete(1).version, 2u);
  expect_newest({a.get()});
}

TEST_P(Conformance, AnUpdateStandsInTheNextReport) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  for (int i = 0; i < 2; ++i) {
    model_.step(++generation_);
    ASSERT_THAT(sender_->update_weights(), IsOk());
    EXPECT_THAT(sender_->wait_async(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("No async send")))
        << "no wait is due after an update";
    expect_newest({a.get(), b.get()});
  }
  const SendReport report = send_complete(2);
  EXPECT_EQ(report.version, 4u);
  ASSERT_EQ(report.updates.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(report.updates[i].version, i + 2);
    EXPECT_THAT(report.updates[i].status, IsOk());
    ASSERT_EQ(report.updates[i].workers.size(), 2u);
    EXPECT_EQ(report.updates[i].workers[0].state, WorkerState::kServing);
  }
  EXPECT_EQ(send_complete(2).updates.size(), 0u) << "an update is reported once";
  expect_newest({a.get(), b.get()});
}

TEST_P(Conformance, AnUpdateThatNobodyCouldTakeStandsThereToo) {
  listen("digest=always");
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  if (is_fake(endpoint())) faults_.set("corrupt", 1);
  TestModel other;
  other.place_on(device());
  other.step(++generation_);
  ASSERT_THAT(sender_->update_weights(other.source()), IsOk());
  const SendReport report = send();
  ASSERT_EQ(report.updates.size(), 1u);
  EXPECT_EQ(report.updates[0].status.ok(), !is_fake(endpoint()));
  expect_newest({a.get()});
}

}  // namespace
}  // namespace bascule::test
