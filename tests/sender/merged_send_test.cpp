// Sends that scale tensors, or merge products of low rank into them, as adapters need it.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class MergedSend : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 40, kColumns = 50, kRank = 3;

  void SetUp() override {
    for (std::vector<float>* const values : {&w_, &b_, &a_})
      for (std::size_t i = 0; i < values->size(); ++i)
        (*values)[i] = std::sin(static_cast<float>(i + values->size())) * 0.5F;
  }

  BorrowedTensor merged() const {
    return {.spec = {"w", DType::kF32, {kRows, kColumns}},
            .data = w_.data(),
            .delta = BorrowedLowRank{.b = {.shape = {kRows, kRank}, .data = b_.data()},
                                     .a = {.shape = {kRank, kColumns}, .data = a_.data()},
                                     .scale = 2}};
  }
  std::vector<float> expected() const {
    std::vector<float> sums = w_;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < kRank; ++k)
          sum = std::fma(b_[static_cast<std::size_t>(i * kRank + k)], a_[static_cast<std::size_t>(k * kColumns + j)],
                         sum);
        float& w = sums[static_cast<std::size_t>(i * kColumns + j)];
        w = std::fma(2.0F, sum, w);
      }
    }
    return sums;
  }

  absl::StatusOr<Sender> registered(std::vector<BorrowedTensor> tensors, const std::string& options = "") {
    auto source = std::make_unique<BorrowedTensors>(std::move(tensors));
    source_ = source.get();
    absl::StatusOr<Sender> sender =
        Sender::listen({.endpoint = endpoint_ + options, .threads = 2, .expect_workers = {.count = 0}});
    if (sender.ok())
      if (const absl::Status made = sender->register_model(std::move(source)); !made.ok()) return made;
    return sender;
  }
  absl::Status refused(BorrowedTensor tensor) { return registered({std::move(tensor)}).status(); }

  // The newest version's tensor, as a new engine sees it.
  std::vector<float> served(const std::string& name) {
    absl::StatusOr<Receiver> engine = Receiver::connect({.endpoint = endpoint_, .worker = "engine"});
    EXPECT_THAT(engine, IsOk());
    EXPECT_THAT(engine->wait_ready(patience()), IsOk());
    const Flip flip = engine->commit();
    const TensorView* const view = engine->weights(flip.slot).find(name);
    if (view != nullptr) {
      std::vector<float> values(element_count(view->shape));
      EXPECT_EQ(view->dtype, DType::kF32);
      std::memcpy(values.data(), view->data, values.size() * sizeof(float));
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  const TempFolder folder_;
  const std::string endpoint_ = cat("shm://", folder_.path().string());
  std::vector<float> w_ = std::vector<float>(kRows * kColumns), b_ = std::vector<float>(kRows * kRank),
                     a_ = std::vector<float>(kRank * kColumns);
  BorrowedTensors* source_ = nullptr;  // the sender's
};

TEST_F(MergedSend, AddsTheProductAndLeavesTheTensorAsItIs) {
  absl::StatusOr<Sender> sender = registered({merged()});
  ASSERT_THAT(sender, IsOk());
  const std::vector<float> before = w_;
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(w_, before);
  EXPECT_EQ(served("w"), expected()) << "a thousand sends do not drift";
}

TEST_F(MergedSend, FollowsFactorsThatChangeAndMove) {
  absl::StatusOr<Sender> sender = registered({merged()});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  a_[7] += 1;
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(served("w"), expected());
  const std::vector<float> old_b = std::exchange(b_, std::vector<float>(b_.size(), 0.25F));
  source_->move_factors(0, b_.data(), a_.data());
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(served("w"), expected());
}

// A weight of [in, out], as in GPT-2: its product is transposed, which the factors' strides can say.
TEST_F(MergedSend, TakesTransposedFactors) {
  BorrowedTensor tensor = merged();
  std::vector<float> b_columns(b_.size()), a_columns(a_.size());
  for (std::int64_t k = 0; k < kRank; ++k) {
    for (std::int64_t i = 0; i < kRows; ++i)
      b_columns[static_cast<std::size_t>(k * kRows + i)] = b_[static_cast<std::size_t>(i * kRank + k)];
    for (std::int64_t j = 0; j < kColumns; ++j)
      a_columns[static_cast<std::size_t>(j * kRank + k)] = a_[static_cast<std::size_t>(k * kColumns + j)];
  }
  tensor.delta->b = {.shape = {kRows, kRank}, .strides = {1, kRows}, .data = b_columns.data()};
  tensor.delta->a = {.shape = {kRank, kColumns}, .strides = {1, kRank}, .data = a_columns.data()};
  absl::StatusOr<Sender> sender = registered({tensor});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(served("w"), expected());
}

TEST_F(MergedSend, ScalesWithoutAProduct) {
  absl::StatusOr<Sender> sender =
      registered({{.spec = {"b", DType::kF32, {kRows, kRank}}, .data = b_.data(), .scale = 4},
                  {.spec = {"a", DType::kF32, {kRank, kColumns}}, .data = a_.data()}});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  std::vector<float> scaled = b_;
  for (float& value : scaled) value *= 4;
  EXPECT_EQ(served("b"), scaled);
  EXPECT_EQ(served("a"), a_);
}

// One storage under two names, of which only one is merged, is two tensors.
TEST_F(MergedSend, ATiedTensorThatIsMergedTravelsByItself) {
  BorrowedTensor plain = merged();
  plain.spec.name = "plain";
  plain.delta.reset();
  absl::StatusOr<Sender> sender = registered({merged(), plain});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(served("w"), expected());
  EXPECT_EQ(served("plain"), w_);
}

TEST_F(MergedSend, TakesTensorsWithoutElements) {
  BorrowedTensor none = merged();
  none.spec = {"none", DType::kF32, {0, kColumns}};
  none.delta->b.shape = {0, kRank};
  absl::StatusOr<Sender> sender = registered({none, merged()});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_EQ(served("w"), expected());
}

TEST_F(MergedSend, RefusesByNameWhatDoesNotFit) {
  BorrowedTensor tensor = merged();
  tensor.delta->a.shape = {kRank, kColumns - 1};
  EXPECT_THAT(refused(tensor), StatusIs(StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("tensor w F32 [40, 50]"), HasSubstr("a w F32 [3, 49]"),
                                              HasSubstr("expected b [40, rank] and a [rank, 50]"))));
  tensor = merged();
  tensor.delta->b.shape = {kRows, 600};
  tensor.delta->a.shape = {600, kColumns};
  EXPECT_THAT(refused(tensor), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected a rank of 1 to 512")));
  tensor = merged();
  tensor.spec.dtype = DType::kI32;
  EXPECT_THAT(refused(tensor), StatusIs(StatusCode::kInvalidArgument,
                                        HasSubstr("tensor w is merged while it is sent, which needs F32, BF16 or F16; "
                                                  "found I32")));
  tensor = merged();
  tensor.delta->b.data = nullptr;
  EXPECT_THAT(refused(tensor), StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no data")));
  EXPECT_THAT(registered({merged()}, "?slots=1").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot be scaled or merged on the way; use slots=2")));
}

}  // namespace
}  // namespace bascule::test
