// What a base costs, and what its sender refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/user.h"
#include "support/processes/footprint.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/base/base.h>
#include <bascule/sender/sender.h>

namespace bascule {
namespace {

using test::BaseUser;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class OneCopy : public testing::Test {
 protected:
  std::string endpoint() const { return "shm://" + folder_.path().string() + "/base"; }
  BaseOptions options(std::uint64_t generation) const {
    BaseOptions options{.endpoint = endpoint(), .name = "test", .compatibility_key = "key"};
    options.tensors = test::TestModel().specs();
    options.timeout = test::patience();
    options.fill = [generation](std::span<const MutableTensorView> tensors) {
      test::write_generation(tensors, generation);
      return absl::OkStatus();
    };
    return options;
  }
  test::TempFolder folder_;
};

// Each process maps the same file, however often another one takes over.
TEST_F(OneCopy, IsTheSameMemoryInAllProcessesAfterTakeOvers) {
  BaseUser first(endpoint(), "first", 5);
  const nlohmann::json memory = first.answer()["memory"];
  BaseUser second(endpoint(), "second", 0);
  EXPECT_EQ(second.answer()["memory"], memory);
  first.process().signal(SIGKILL);
  second.wait_until_it_answers();
  BaseUser third(endpoint(), "third", 6);
  EXPECT_EQ(third.answer()["memory"], memory);
  second.process().signal(SIGKILL);
  third.wait_until_it_answers();
  EXPECT_EQ(BaseUser(endpoint(), "fourth", 6).answer()["memory"], memory);
}

TEST_F(OneCopy, ComparesTheDigestThatIsExpected) {
  absl::StatusOr<Base> made = Base::open(options(5));
  ASSERT_THAT(made, IsOk());
  BaseOptions expecting = options(5);
  expecting.name = "other";
  expecting.digest = made->held().digest;
  EXPECT_THAT(Base::open(expecting), IsOk());
  expecting.digest->low ^= 1;
  EXPECT_THAT(Base::open(expecting), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("holds other weights")));
}

TEST_F(OneCopy, IsNotMadeIfItCannotBeFilled) {
  BaseOptions failing = options(5);
  failing.fill = [](std::span<const MutableTensorView>) { return absl::NotFoundError("no such checkpoint"); };
  EXPECT_THAT(Base::open(failing), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such checkpoint")));
  EXPECT_THAT(Base::open(options(6)), IsOk()) << "the next process makes it";
}

TEST_F(OneCopy, OutlivesTheObjectWhileItsMemoryIsKept) {
  std::shared_ptr<const void> memory;
  std::span<const std::byte> bytes;
  {
    absl::StatusOr<Base> made = Base::open(options(5));
    ASSERT_THAT(made, IsOk());
    memory = made->held().memory;
    bytes = made->held().bytes;
  }
  EXPECT_NE(bytes[0], std::byte{0});
}

TEST_F(OneCopy, WaitsForAMakerAtMostItsTimeout) {
  BaseOptions joining = options(5);
  joining.fill = nullptr;
  joining.timeout = absl::Milliseconds(200);
  EXPECT_THAT(Base::open(joining), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no process made it")));
}

TEST_F(OneCopy, OfAnotherSchemeIsRefused) {
  BaseOptions other = options(5);
  other.endpoint = "memmap://" + folder_.path().string() + "/base";
  EXPECT_THAT(Base::open(other),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("hand on to the next sender, which memmap")));
}

TEST_F(OneCopy, InHostMemoryIsNotForAGpu) {
  BaseOptions on_gpu = options(5);
  on_gpu.device = 0;
  EXPECT_THAT(Base::open(on_gpu), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of the host")));
}

// Also if a process that takes any weights answers in between.
TEST_F(OneCopy, KeepsItsKey) {
  BaseOptions with_weights = options(5);
  with_weights.weights = "seed 5";
  absl::StatusOr<Base> made = Base::open(with_weights);
  ASSERT_THAT(made, IsOk());
  BaseOptions any = options(6);
  any.fill = nullptr;
  absl::StatusOr<Base> second = Base::open(any);
  ASSERT_THAT(second, IsOk());
  made = absl::CancelledError("ended");
  BaseOptions other = options(7);
  other.weights = "seed 7";
  EXPECT_THAT(Base::open(other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("seed 5"), HasSubstr("seed 7"), HasSubstr("another endpoint"))));
  BaseOptions of_another_kind = options(5);
  of_another_kind.fill = nullptr;
  of_another_kind.compatibility_key = "of another configuration";
  EXPECT_THAT(Base::open(of_another_kind), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another model")));
  EXPECT_THAT(Base::open(with_weights), IsOk());
}

TEST_F(OneCopy, SaysForWhatItWaits) {
  BaseOptions joining = options(5);
  joining.fill = nullptr;
  joining.timeout = absl::Seconds(3);
  std::vector<std::string> lines;
  joining.log = [&](std::string_view line) { lines.emplace_back(line); };
  EXPECT_THAT(Base::open(joining), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no process made it")));
  EXPECT_THAT(lines, Contains(HasSubstr("waiting for the base")));
}

class HeldSender : public OneCopy {};

TEST_F(HeldSender, SendsOnce) {
  absl::StatusOr<Sender> sender =
      Sender::listen({.endpoint = endpoint(), .expect_workers = {.count = 0}, .held = true});
  ASSERT_THAT(sender, IsOk());
  test::TestModel model;
  model.step(5);
  EXPECT_THAT(sender->held(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has published")));
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  ASSERT_THAT(sender->held(), IsOk());
  EXPECT_THAT(sender->send(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("never changes")));
  EXPECT_THAT(sender->loan(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("never changes")));
  EXPECT_THAT(Base::open(options(6)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a sender that holds no base")));
}

}  // namespace
}  // namespace bascule
