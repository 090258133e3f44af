// A peer of the same user that acts as the sender of a single copy, and leaves the engine in its commit(): it replaces
// or ends what the engine waits for in every way that the protocol has, or only sends heartbeats.
#include "receiver/wire_sender.h"  // first: see there

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "receiver/attached.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::HasSubstr;

class SingleCopyAttack : public testing::Test {
 protected:
  // The engine serves version 1 in slot 0.
  void join(const std::string& options) {
    absl::StatusOr<Receiver> made = Receiver::connect(
        {.endpoint = cat("shm://", folder_.path().string(), "?slots=2&suspect_after=1h&heartbeat=20ms", options),
         .worker = "a",
         .trace = [this](std::string_view line) {
           if (line == "from sender: abort") ++aborts_;
         }});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
    receiver_->join();
    come_back();
    prepare(1, 0);
    sender_.expect<Ready>();
    seal(1, 0);
    sender_.expect<Prepared>();
    sender_.say(Decided{.version = 1});
    ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
    EXPECT_EQ(receiver_->commit().version, 1u);
    sender_.expect<Ack>();
  }
  void come_back() {
    sender_.greeted();
    Welcome welcome = memory_.welcome();
    sender_.say(welcome, {memory_.slots[0].descriptor.get(), memory_.slots[1].descriptor.get(),
                          memory_.page.descriptor(), lease_.get()});
  }
  void prepare(Version version, std::uint32_t slot) {
    sender_.say(Prepare{.version = version,
                        .slot = {kEpoch, slot},
                        .lease = version,
                        .bytes = memory_.layout.bytes(),
                        .offer = std::nullopt,
                        .slots = {0, 1}});
  }
  void seal(Version version, std::uint32_t slot) {
    memory_.page.seal(slot, version, memory_.layout.bytes(), std::nullopt);
    sender_.say(Sealed{.version = version, .digest = std::nullopt});
  }
  // Has the engine wait in commit() for version 2, in the slot that it reads. Returns what that commit() will return.
  std::future<Flip> wait_for_version_2() {
    prepare(2, 0);
    for (const Deadline deadline(patience()); !receiver_->pending() && !deadline.passed();) std::this_thread::yield();
    std::future<Flip> waiting = std::async(std::launch::async, [this] { return receiver_->commit(); });
    sender_.expect<Ready>();
    return waiting;
  }
  // If commit() does not return, the test can only end the process: nothing else ends the wait.
  static Flip result(std::future<Flip>& waiting) {
    if (waiting.wait_for(absl::ToChronoSeconds(patience())) == std::future_status::ready) return waiting.get();
    ADD_FAILURE() << "commit() still waits";
    std::abort();
  }
  // The status follows soon after commit().
  std::string why_poisoned() {
    for (const Deadline deadline(patience()); !deadline.passed(); std::this_thread::yield())
      if (const ReceiverStatus status = receiver_->status(); status.state == ReceiverState::kPoisoned)
        return std::string(status.error.message());
    return "it is not poisoned";
  }

  const TempFolder folder_;
  SenderMemory memory_ = SenderMemory::make({{"w", DType::kF32, {4}}});
  const UniqueFd lease_{::dup(memory_.page.descriptor())};  // any descriptor: it is only kept
  WireSender sender_{folder_.path()};
  std::atomic<int> aborts_ = 0;  // that the receiver has read
  std::optional<Receiver> receiver_;
};

struct Attack {
  std::string name;
  std::function<void(WireSender&, const std::function<void(Version, std::uint32_t)>& prepare)> does;
};

class SingleCopyAttacks : public SingleCopyAttack, public testing::WithParamInterface<Attack> {};

TEST_P(SingleCopyAttacks, LeavesNoEngineInItsCommit) {
  join("");
  std::future<Flip> waiting = wait_for_version_2();
  GetParam().does(sender_, [this](Version version, std::uint32_t slot) { prepare(version, slot); });
  const Flip flip = result(waiting);
  EXPECT_FALSE(flip.changed);
  EXPECT_TRUE(flip.poisoned) << "the peer was told that it may write";
  EXPECT_THAT(why_poisoned(), HasSubstr("single copy"));
}

INSTANTIATE_TEST_SUITE_P(
    , SingleCopyAttacks,
    testing::Values(
        Attack{"HangsUp", [](auto& sender, auto&) { sender.hang_up(); }},
        Attack{"PreparesAnotherSlot", [](auto&, auto& prepare) { prepare(3, 1); }},
        Attack{"PreparesAnotherSlotAndHangsUp",
               [](auto& sender, auto& prepare) {
                 prepare(3, 1);
                 sender.hang_up();
               }},
        Attack{"PreparesTheSameSlotOnceMore", [](auto&, auto& prepare) { prepare(3, 0); }},
        Attack{"PreparesTheSameVersionOnceMore", [](auto&, auto& prepare) { prepare(2, 0); }},
        Attack{"PreparesTheServedVersion", [](auto&, auto& prepare) { prepare(1, 0); }},
        Attack{"PreparesAnOlderVersion", [](auto&, auto& prepare) { prepare(0, 0); }},
        Attack{"AbortsIt", [](auto& sender, auto&) { sender.say(Abort{.version = 2, .torn = true}); }},
        Attack{"DecidesItBeforeItIsPrepared", [](auto& sender, auto&) { sender.say(Decided{.version = 2}); }},
        Attack{"DecidesAnotherVersion", [](auto& sender, auto&) { sender.say(Decided{.version = 7}); }},
        Attack{"SaysBye", [](auto& sender, auto&) { sender.say(Bye{}); }},
        Attack{"RefusesIt", [](auto& sender, auto&) { sender.say(Refused{.why = "a test", .final = false}); }},
        Attack{"SpeaksAsAWorker", [](auto& sender, auto&) { sender.say(Ready{.version = 2}); }}),
    [](const auto& attack) { return attack.param.name; });

// Its URL says slots=2, and the sender is alive on the socket.
TEST_F(SingleCopyAttack, OfAPeerThatOnlySendsHeartbeatsEndsAfterTheReceiversOwnTime) {
  join("&timeout=100ms&loan_timeout=100ms");
  std::future<Flip> waiting = wait_for_version_2();
  for (const Deadline deadline(patience());
       waiting.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready && !deadline.passed();)
    sender_.say(Heartbeat{});
  EXPECT_TRUE(result(waiting).poisoned);
  EXPECT_THAT(why_poisoned(), HasSubstr("neither published nor aborted the version for which commit() waited 300ms"));
  EXPECT_THAT(sender_.expect<Bye>().why, HasSubstr("neither published nor aborted"));
  EXPECT_TRUE(receiver_->commit().poisoned) << "until the next version, and at once";
}

// It yields once more for a sender that comes back, and the next version cures it.
TEST_F(SingleCopyAttack, IsCuredByTheNextVersion) {
  join("");
  std::future<Flip> waiting = wait_for_version_2();
  prepare(3, 1);
  EXPECT_TRUE(result(waiting).poisoned);
  come_back();
  prepare(4, 0);
  waiting = std::async(std::launch::async, [this] {
    Flip flip = receiver_->commit();
    for (const Deadline deadline(patience()); flip.version != 4 && !deadline.passed();) flip = receiver_->commit();
    return flip;
  });
  Message heard = sender_.next();
  while (!std::holds_alternative<Ready>(heard) && !sender_.hung_up()) heard = sender_.next();
  seal(4, 0);
  while (!std::holds_alternative<Prepared>(heard) && !sender_.hung_up()) heard = sender_.next();
  sender_.say(Decided{.version = 4});
  const Flip flip = result(waiting);
  EXPECT_TRUE(flip.changed);
  EXPECT_FALSE(flip.poisoned);
}

// The engine is late, so its sender evicted it: a version waits at the gate, and the sender begins the next one there.
TEST_F(SingleCopyAttack, WritesNothingOverAVersionThatTheEngineWillTake) {
  join("");
  std::future<Flip> waiting = wait_for_version_2();
  seal(2, 0);
  sender_.expect<Prepared>();
  sender_.say(Decided{.version = 2});
  EXPECT_EQ(result(waiting).version, 2u);
  sender_.expect<Ack>();
  prepare(3, 1);
  EXPECT_EQ(sender_.expect<Ready>().version, 3u);
  seal(3, 1);
  sender_.expect<Prepared>();
  sender_.say(Decided{.version = 3});
  ASSERT_THAT(receiver_->wait_ready(3, patience()), IsOk());  // and the engine makes no token
  come_back();
  prepare(4, 1);
  sender_.say(Abort{.version = 99});  // not known, so it only shows that what came before has been handled
  for (const Deadline deadline(patience()); aborts_ == 0 && !deadline.passed();) std::this_thread::yield();
  waiting = std::async(std::launch::async, [this] { return receiver_->commit(); });
  EXPECT_EQ(sender_.expect<Ready>().version, 4u) << "only once the engine waits";
  sender_.hang_up();
  const Flip flip = result(waiting);
  EXPECT_FALSE(flip.changed) << "version 3 may be half written over";
  EXPECT_TRUE(flip.poisoned);
}

}  // namespace
}  // namespace bascule::test
