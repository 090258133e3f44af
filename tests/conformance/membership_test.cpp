// Members of an endpoint: readers that come early, late, again, twice under one name, or with another model.
#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_P(Conformance, ALateJoinerIsServedTheNewestWithoutTheTrainer) {
  listen();
  for (int i = 0; i < 3; ++i) send_complete(0);
  // The trainer does nothing after this.
  const auto late = start("late");
  EXPECT_EQ(late->wait_ready(), "");
  const Observed ready = late->report();
  EXPECT_EQ(ready.state, "pending");
  EXPECT_EQ(ready.version, 0u);
  late->wait_until([](const Observed& now) { return now.pendings == 1; }, "being woken");
  const Observed flipped = late->step();
  EXPECT_EQ(flipped.version, 3u);
  EXPECT_EQ(flipped.generation, generation_);
  late->tell("run");
  expect_newest({late.get()});
  wait_for_workers(1);
  send_complete(1);
}

TEST_P(Conformance, ReadersJoinWhileTheWriterSends) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  std::vector<std::unique_ptr<Worker>> late;
  for (int i = 0; i < 20; ++i) {
    if (i % 5 == 0) late.push_back(join(cat("late-", i)));
    const SendReport report = send();
    for (const WorkerReport& worker : report.workers) {
      EXPECT_TRUE(worker.state == WorkerState::kServing || worker.state == WorkerState::kCatchingUp)
          << worker.worker << ": " << worker.error;
    }
  }
  wait_for_workers(5);
  send_complete(5);
  expect_newest({a.get(), late[0].get(), late[1].get(), late[2].get(), late[3].get()});
}

TEST_P(Conformance, AnEngineMayStartBeforeItsTrainer) {
  const auto early = start("early");
  EXPECT_THAT(early->wait_ready(absl::Milliseconds(20)), HasSubstr("no sender"));
  EXPECT_EQ(early->report().state, "joining");
  listen();
  early->tell("run");
  wait_for_workers(1);
  send_complete(1);
  expect_newest({early.get()});
}

TEST_P(Conformance, ACompatibilityKeyIsComparedWhereBothEndsGaveOne) {
  BASCULE_RECEIVES_HERE();
  SenderOptions options{.endpoint = endpoint(), .compatibility_key = "model 1"};
  options.scheme = given_scheme();
  absl::StatusOr<Sender> sender = Sender::listen(options);
  ASSERT_THAT(sender, IsOk());
  sender_.emplace(*std::move(sender));
  ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  const auto receiver = [&](std::string worker, std::string compatibility_key) {
    ReceiverOptions options{
        .endpoint = workers_endpoint(), .worker = std::move(worker), .compatibility_key = std::move(compatibility_key)};
    options.device = engine_device();
    options.scheme = given_scheme();
    absl::StatusOr<Receiver> made = Receiver::connect(std::move(options));
    EXPECT_THAT(made, IsOk());
    made->join();
    return made;
  };
  const auto same = receiver("same", "model 1"), none = receiver("none", "");
  wait_for_workers(2);
  auto other = receiver("other", "model 2");
  EXPECT_THAT(other->wait_ready(absl::Seconds(30)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker other has the compatibility key \"model 2\""),
                             HasSubstr("sender \"model 1\""))));
  EXPECT_FALSE(other->status().attached);
}

TEST_P(Conformance, ACompatibilityKeyThatIsTooLongOrNoTextIsRefused) {
  const std::string bad[] = {std::string(1025, 'a'), "\xff"};
  for (const std::string& compatibility_key : bad) {
    SenderOptions sender{.endpoint = endpoint(), .compatibility_key = compatibility_key};
    sender.scheme = given_scheme();
    EXPECT_THAT(Sender::listen(sender),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compatibility_key: expected")));
    ReceiverOptions receiver{.endpoint = endpoint(), .worker = "a", .compatibility_key = compatibility_key};
    receiver.scheme = given_scheme();
    EXPECT_THAT(Receiver::connect(receiver),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compatibility_key: expected")));
  }
}

TEST_P(Conformance, AReaderMayBeStartedAgainUnderItsName) {
  listen();
  auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  a = nullptr;
  a = join("a");
  expect_newest({a.get()});
  wait_for_workers(1);
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Conformance, ASecondReaderOfTheSameNameIsRefusedWhileTheFirstIsThere) {
  listen();
  auto first = join("twin");
  wait_for_workers(1);
  send_complete(1);
  const auto second = start("twin");
  EXPECT_NE(second->wait_ready(absl::ZeroDuration()), "");  // makes it greet
  second->wait_until_error(AllOf(HasSubstr("another worker named twin (pid "), HasSubstr("own name")));
  EXPECT_EQ(second->report().version, 0u);
  send_complete(1);
  expect_newest({first.get()});
  first = nullptr;
  second->tell("run");
  expect_newest({second.get()});
}

// ---- layouts ----

struct Refusal {
  std::string_view name;
  void (*change)(std::vector<TensorSpec>& expected);
  std::string_view text;
};

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all = {
      {"missing",
       [](auto& specs) {
         specs.push_back({"nowhere", DType::kF32, {2}});
       },
       "nowhere F32 [2] is expected, but not sent"},
      {"surplus", [](auto& specs) { std::erase_if(specs, [](const auto& spec) { return spec.name == "scale"; }); },
       "scale F32 [] is sent, but not expected"},
      {"duplicate", [](auto& specs) { specs.push_back(specs.front()); }, "generation is expected twice"},
      {"reshaped",
       [](auto& specs) {
         specs.front().shape = {1, 1};
       },
       "generation is sent as U64 [], expected U64 [1, 1]"},
      {"retyped", [](auto& specs) { specs.front().dtype = DType::kI64; },
       "generation is sent as U64 [], expected I64 []"},
      {"several",
       [](auto& specs) {
         for (TensorSpec& spec : specs) spec.shape.push_back(1);
       },
       "more differences"},
  };
  return all;
}

TEST_P(Conformance, AWorkerWithAnotherModelIsRefusedWithTheFirstDifference) {
  listen();
  const auto healthy = join("healthy");
  wait_for_workers(1);
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.name);
    std::vector<TensorSpec> expected = model_.specs();
    refusal.change(expected);
    absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint(),
                                                           .worker = cat("other-", refusal.name),
                                                           .expected = expected,
                                                           .scheme = given_scheme()});
    ASSERT_THAT(receiver, IsOk());
    EXPECT_THAT(receiver->wait_ready(patience()),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(std::string(refusal.text))));
    EXPECT_FALSE(receiver->commit().changed);
    // The sender also tells a caller that waits for workers, perhaps a moment after the worker.
    absl::Status waited;
    for (const Deadline deadline(patience()); !deadline.passed();) {
      waited = sender_->wait_for_workers(2, absl::Milliseconds(1)).status();
      if (waited.message().find(std::string(refusal.text)) != absl::string_view::npos) break;
    }
    EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("found 1: healthy"), HasSubstr(std::string(refusal.text)))));
  }
  send_complete(1);
  expect_newest({healthy.get()});
}

TEST_P(Conformance, AWorkerWithTheTrainersModelIsTaken) {
  BASCULE_RECEIVES_HERE();
  listen();
  absl::StatusOr<Receiver> receiver = Receiver::connect(
      {.endpoint = endpoint(), .worker = "same", .expected = model_.specs(), .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->wait_ready(absl::ZeroDuration()), StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_));
  wait_for_workers(1);
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  ASSERT_THAT(receiver->wait_ready(patience()), IsOk());
  const Flip flip = receiver->commit();
  EXPECT_TRUE(flip.changed);
  EXPECT_THAT(sender_->wait_async(patience()), IsOk());
  EXPECT_EQ(generation_of(receiver->weights(flip.slot).tensors(), ModelSize::kSmall).value_or(0), generation_);
  EXPECT_FALSE(receiver->commit().changed) << "nothing is pending";
}

}  // namespace
}  // namespace bascule::test
