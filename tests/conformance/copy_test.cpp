// Workers that copy into their own tensors: they serve whole versions only, and their leases end early.
#include <memory>
#include <thread>

#include "conformance/targets.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

TEST_P(Conformance, CopiesAreWholeGenerationsWhileTheWriterNeverPauses) {
  listen();
  const auto in_place = join("in-place"), commit = join("commit", "", Apply::kCommit),
             background = join("background", "", Apply::kBackground);
  wait_for_workers(3);
  for (int i = 0; i < 60; ++i) send_complete(3);
  expect_newest({in_place.get(), commit.get(), background.get()});
  for (Worker* worker : {commit.get(), background.get()}) {
    EXPECT_EQ(worker->report().flips, 60u);
    EXPECT_GT(worker->report().checks, 0u);
  }
}

TEST_P(Conformance, ACopyingWorkerMayJoinLateAndOutlivesItsTrainer) {
  listen();
  send_complete(0);
  send_complete(0);
  const auto commit = join("commit", "", Apply::kCommit), background = join("background", "", Apply::kBackground);
  expect_newest({commit.get(), background.get()});
  for (int run = 0; run < 2; ++run) {
    sender_.reset();
    for (Worker* worker : {commit.get(), background.get()})
      worker->wait_until([](const Observed& now) { return !now.attached && now.version > 0; }, "being alone");
    listen();
    wait_for_workers(2);
    for (int i = 0; i < 3; ++i) send_complete(2);
    expect_newest({commit.get(), background.get()});
  }
}

// A worker that copies serves its own memory: it keeps no slot from the writer, however long it does not flip.
TEST_P(Conformance, ACopyingWorkerThatDoesNotFlipHoldsNoSlot) {
  for (const Apply apply : kBoth) {
    SCOPED_TRACE(name_of(apply));
    listen(hasty());
    const auto slow = join(cat("slow-", name_of(apply)), hasty(), apply), other = join("other", hasty());
    wait_for_workers(2);
    send_complete(2);
    const Observed before = slow->report();
    slow->tell("hold");
    for (int i = 0; i < 4; ++i) {
      const SendReport report = send();  // the first send waits for it, and gives it up
      EXPECT_EQ(entry(report, "other").state, WorkerState::kServing) << entry(report, "other").error;
    }
    const Observed held =
        slow->wait_until([&](const Observed& now) { return now.checks > before.checks + 5; }, "more checks");
    EXPECT_EQ(held.generation, before.generation);
    EXPECT_EQ(held.wrong, "");
    slow->tell("run");
    expect_newest({slow.get(), other.get()});
    sender_.reset();
  }
}

// ---- a copy that goes wrong ----

// Writes to a sealed slot, as no healthy trainer does, after the prepare verified it and before the flip.
TEST_P(Conformance, ACopyThatGoesWrongAtTheFlipPoisonsUntilTheNextVersion) {
  if (!reads_in_place()) GTEST_SKIP() << "the reader's memory is its own: no one else writes it";
  listen();
  std::shared_ptr<std::byte> memory;
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "a", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->register_model(targets_of(model_.specs(), memory, engine_device()), {.apply = Apply::kCommit}),
              IsOk());
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  wait_for_workers(1);
  absl::StatusOr<WritableSlot> slot = sender_->loan();
  ASSERT_THAT(slot, IsOk());
  write_generation(slot->tensors(), ++generation_);
  std::byte* const changed = slot->tensors().front().data;
  const auto flip_a_bit = [&] {
    const int place = device_for(GetParam().scheme);
    std::byte value{};
    if (place == kHost) value = *changed;
    if (place != kHost) download({&value, 1}, changed, place);
    value ^= std::byte{0x04};
    put(changed, {&value, 1}, place);
  };
  std::thread publishing([&] { EXPECT_THAT(sender_->publish(*std::move(slot)), IsOk()); });
  EXPECT_THAT(receiver->wait_ready(patience()), IsOk());
  flip_a_bit();
  const Flip flip = receiver->commit();
  publishing.join();  // the send gives the worker up
  EXPECT_FALSE(flip.changed);
  EXPECT_EQ(flip.version, 0u);
  const ReceiverStatus status = receiver->status();
  EXPECT_EQ(status.state, ReceiverState::kPoisoned);
  flip_a_bit();

  // The newest version, which is whole again, mends the worker.
  Flip mended;
  for (const Deadline deadline(patience()); !mended.changed && !deadline.passed();) mended = receiver->commit();
  EXPECT_EQ(mended.version, 1u);
  EXPECT_EQ(generation_of(receiver->weights(mended.slot).tensors(), ModelSize::kSmall).value_or(0), generation_);
}

}  // namespace

class CopyFaults : public Stage {};
INSTANTIATE_TEST_SUITE_P(Fake, CopyFaults, testing::Values(Setting{"fake", Readers::kThreads}),
                         [](const testing::TestParamInfo<Setting>&) { return "Threads"; });

TEST_P(CopyFaults, ACorruptedByteFailsThePrepareAndTheOldVersionStays) {
  for (const Apply apply : kBoth) {
    SCOPED_TRACE(name_of(apply));
    listen();  // digest=on
    const auto a = join("a", "", apply), b = join("b", "", apply);
    wait_for_workers(2);
    send_complete(2);
    send_complete(2);
    for (const std::string fault : {"corrupt", "misread"}) {
      SCOPED_TRACE(fault);
      const Observed before = a->report();
      if (fault == "corrupt") {
        faults_.set(fault, 1);
      } else {
        a->tell("fault misread 1");
      }
      model_.step(++generation_);
      EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kAborted, AllOf(HasSubstr("worker "), HasSubstr("digest "),
                                                                        HasSubstr("changed after they were sealed"))));
      const Observed after =
          a->wait_until([&](const Observed& now) { return now.checks > before.checks + 3; }, "more checks");
      EXPECT_EQ(after.wrong, "");
      EXPECT_EQ(after.version, before.version);
      EXPECT_EQ(after.generation, before.generation);
      send_complete(2);
    }
    expect_newest({a.get(), b.get()});
    sender_.reset();
  }
}

}  // namespace bascule::test
