// A model that is registered only by names, types and shapes: its versions are loans, or weights given to a send.
#include "conformance/suite.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// listen() without tensors.
void listen_for_specs(Stage& stage, std::string_view options = "") {
  absl::StatusOr<Sender> sender = stage.try_listen(options);
  ASSERT_THAT(sender, IsOk());
  stage.sender_.emplace(*std::move(sender));
  ASSERT_THAT(stage.sender_->register_model(stage.model_.specs(), stage.device()), IsOk());
}

TEST_P(Conformance, AModelOfSpecsIsSentByALoanThatIsFilledTensorByTensor) {
  listen_for_specs(*this);
  EXPECT_THAT(sender_->register_model(model_.source()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("already")));
  const auto a = join("a");
  wait_for_workers(1);
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    ++generation_;
    for (const TensorSpec& spec : model_.specs()) {
      const MutableTensorView* const tensor = slot->find(spec.name);
      ASSERT_NE(tensor, nullptr) << spec.name;
      write_generation({tensor, 1}, generation_);
    }
    const absl::StatusOr<SendReport> report = sender_->publish(*std::move(slot));
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get()});
  }
}

TEST_P(Conformance, AModelOfSpecsIsSentByWeightsAndNotWithoutThem) {
  listen_for_specs(*this);
  const auto a = join("a");
  wait_for_workers(1);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("give the weights to send")));
  for (int i = 0; i < 3; ++i) {
    model_.step(++generation_);
    const absl::StatusOr<SendReport> report = sender_->send(model_.source());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get()});
  }
}

TEST_P(SingleCopy, AModelOfSpecsIsRefused) {
  absl::StatusOr<Sender> sender = try_listen("slots=1");
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(model_.specs(), device()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not only their specs")));
}

}  // namespace
}  // namespace bascule::test
