// The sender's calls: what each refuses, with which text, and that a refusal loses nothing.
#include <cstring>

#include "conformance/suite.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::_;
using testing::AllOf;
using testing::HasSubstr;

TEST_P(Conformance, ASendWithoutWorkersIsAVersion) {
  listen();
  const SendReport report = send();
  EXPECT_EQ(report.version, 1u);
  EXPECT_EQ(report.workers.size(), 0u);
  EXPECT_FALSE(report.complete()) << "by default a worker is expected";
  ASSERT_THAT(sender_->expect_workers({.count = 0}), IsOk());
  EXPECT_TRUE(send().complete());
  EXPECT_EQ(sender_->version(), 2u);
}

TEST_P(Conformance, ASendNeedsARegisteredModel) {
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  const auto wants = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("register_model"));
  EXPECT_THAT(sender->send(), wants);
  EXPECT_THAT(sender->send_async(), wants);
  EXPECT_THAT(sender->loan(), wants);
  EXPECT_THAT(sender->wait_for_workers(0, absl::ZeroDuration()), wants);
  ASSERT_THAT(sender->register_model(model_.source()), IsOk());
  EXPECT_THAT(sender->register_model(model_.source()), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("already")));
  EXPECT_THAT(sender->send(), IsOk());
}

TEST_P(Conformance, OneAsyncSendAtATimeInTorchRLsWords) {
  listen();
  const auto slow = join("slow");
  wait_for_workers(1);
  EXPECT_THAT(sender_->wait_async(),
              StatusIs(StatusCode::kFailedPrecondition, "No async send is pending. Call send_async() first."));
  send_complete(1);
  slow->tell("hold");
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  const auto refused =
      StatusIs(StatusCode::kFailedPrecondition,
               "Cannot call send_async() again while a previous send is pending. Call wait_async() first.");
  EXPECT_THAT(sender_->send_async(), refused);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("wait_async")));
  EXPECT_THAT(sender_->loan(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("wait_async")));

  // A wait that times out leaves the send pending; it settles when the worker flips.
  EXPECT_THAT(sender_->wait_async(absl::Milliseconds(20)), StatusIs(StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(sender_->send_async(), refused);
  slow->tell("run");
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->version, 2u);
  EXPECT_TRUE(report->complete());
  expect_newest({slow.get()});
  EXPECT_THAT(sender_->wait_async(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("No async send")));
}

// The weights may change as soon as send_async() has returned.
TEST_P(Conformance, WeightsMayChangeWhileAnAsyncSendIsUnderWay) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  for (int i = 0; i < 20; ++i) {
    model_.step(++generation_);
    ASSERT_THAT(sender_->send_async(), IsOk());
    model_.step(10'000);  // no reader may see it
    const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get(), b.get()});
  }
}

TEST_P(Conformance, ALoanIsPublishedAsItWasWritten) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    EXPECT_THAT(sender_->loan(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("loan")));
    EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("loan")));
    write_generation(slot->tensors(), ++generation_);
    const Version version = slot->version();
    const absl::StatusOr<SendReport> report = sender_->publish(*std::move(slot));
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->version, version);
    EXPECT_TRUE(report->complete());
    expect_newest({a.get()});
  }
}

TEST_P(Conformance, ADroppedLoanIsAbortedAndItsNumberNotUsedAgain) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  Version dropped = 0;
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    EXPECT_GT(slot->version(), dropped);
    dropped = slot->version();
    write_generation(slot->tensors(), 10'000);  // no reader may see it
  }
  EXPECT_EQ(sender_->version(), 1u);
  EXPECT_EQ(a->report().version, 1u);
  EXPECT_GT(send_complete(1).version, dropped);
  expect_newest({a.get()});
  EXPECT_THAT(sender_->wait_async(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("No async send")));
}

TEST_P(Conformance, AStorageThatMovedIsFollowed) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  for (int i = 0; i < 3; ++i) {
    send_complete(1);
    expect_newest({a.get()});
    model_.move_storage();
  }
}

TEST_P(Conformance, UnchangedWeightsAreAWarning) {
  listen();
  send();
  const absl::StatusOr<SendReport> again = sender_->send();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->warnings, testing::ElementsAre(AllOf(HasSubstr("version 2"), HasSubstr("version 1"))));
  EXPECT_EQ(send().warnings.size(), 0u);
}

// Tensors that a test changes between two sends.
class Changing final : public TensorSource {
 public:
  explicit Changing(std::vector<TensorView>& views) : views_(views) {}
  absl::StatusOr<std::span<const TensorView>> views() override { return std::span<const TensorView>(views_); }

 private:
  std::vector<TensorView>& views_;
};

TEST_P(Conformance, AShapeOrTypeThatChangedIsNamedAndNothingIsLost) {
  const std::vector<float> data(12, 1.5f);
  const std::vector<std::int64_t> shape = {3, 4}, other = {4, 3};
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  std::vector<TensorView> views = {
      {.name = "first", .dtype = DType::kF32, .shape = shape, .strides = {}, .data = bytes},
      {.name = "second", .dtype = DType::kF32, .shape = other, .strides = {}, .data = bytes}};
  const std::vector<TensorView> registered = views;
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(placed(std::make_unique<Changing>(views), device())), IsOk());
  ASSERT_THAT(sender->send(), IsOk());

  views[0].shape = other;
  EXPECT_THAT(sender->send(),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("first F32 [4, 3]"), HasSubstr("registered as first F32 [3, 4]"))));
  views = registered;
  views[1].dtype = DType::kI32;
  EXPECT_THAT(sender->send_async(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("second I32 [4, 3]")));
  views = registered;
  views.pop_back();
  EXPECT_THAT(sender->send(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 tensors, registered were 2")));
  views = registered;
  const absl::StatusOr<SendReport> report = sender->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->version, 2u) << "a refused send takes no number";
}

}  // namespace
}  // namespace bascule::test
