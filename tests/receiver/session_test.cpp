// A worker and a sender that comes back, seen from the wire; the test is the sender.
#include "receiver/wire_sender.h"  // first: see there

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "receiver/attached.h"
#include "support/schemes/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::patience;

class SessionTest : public testing::Test {
 protected:
  // Joins as rank `rank` of `ranks`; without a group if there is one.
  void join(std::uint32_t rank = 0, std::uint32_t ranks = 1) {
    auto made = Receiver::connect({.endpoint = "fake://" + folder_.path().string() + endpoint_options_,
                                   .worker = "a",
                                   .group = ranks > 1 ? "tp" : "",
                                   .rank = rank,
                                   .ranks = ranks,
                                   .log =
                                       [this](std::string_view line) {
                                         if (line.find(" was removed: ") != line.npos) ++said_gone_;
                                       },
                                   .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
    EXPECT_FALSE(receiver_->commit().changed);  // it begins to look for a sender
  }

  void welcome() {
    Welcome welcome = memory_.welcome();
    welcome.offer = "fake";
    std::vector<int> descriptors;
    for (const SlotMemory& slot : memory_.slots) descriptors.push_back(slot.descriptor.get());
    descriptors.push_back(memory_.page.descriptor());
    descriptors.push_back(lease_.get());
    sender_.say(welcome, descriptors);
  }
  void prepare(Version version, std::uint32_t slot, std::vector<std::uint32_t> slots = {0, 1, 2}) {
    sender_.say(Prepare{.version = version,
                        .slot = {test::kEpoch, slot},
                        .lease = version,
                        .bytes = memory_.layout.bytes(),
                        .offer = std::nullopt,
                        .slots = std::move(slots)});
  }
  void tell(Version version, std::uint32_t slot) {
    prepare(version, slot);
    EXPECT_EQ(sender_.expect<Ready>().version, version);
  }
  // Sends everything up to `sealed`.
  void write(Version version, std::uint32_t slot) {
    tell(version, slot);
    seal(version, slot);
  }
  void seal(Version version, std::uint32_t slot) {
    memory_.page.seal(slot, version, memory_.layout.bytes(), std::nullopt);
    sender_.say(Sealed{.version = version, .digest = std::nullopt});
  }
  void publish(Version version, std::uint32_t slot) {
    write(version, slot);
    EXPECT_EQ(sender_.expect<Prepared>().version, version);
    sender_.say(Decided{.version = version});
  }
  void flip_to(Version version) {
    ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
    for (const Deadline deadline(patience()); receiver_->commit(version).version != version && !deadline.passed();)
      std::this_thread::yield();
    EXPECT_EQ(sender_.expect<Ack>().version, version);
  }
  template <typename PassedOver>
  Message next_but() {
    Message said = sender_.next();
    while (std::holds_alternative<Heartbeat>(said) || std::holds_alternative<PassedOver>(said)) said = sender_.next();
    return said;
  }
  // Loses the connection, and takes the worker's next hello.
  Hello come_back() {
    Hello hello = sender_.greeted();
    welcome();
    return hello;
  }

  const test::TempFolder folder_;
  std::string endpoint_options_ = "?suspect_after=60s";
  std::atomic<int> said_gone_ = 0;
  test::FakeFaults faults_;
  const Scheme scheme_ = test::fake_scheme(faults_);
  test::SenderMemory memory_ = test::SenderMemory::make({{"w", DType::kF32, {4}}}, {}, 3);
  const UniqueFd lease_{::dup(memory_.page.descriptor())};  // any descriptor: it is only kept
  test::WireSender sender_{folder_.path()};
  std::optional<Receiver> receiver_;
};

TEST_F(SessionTest, LeavesASenderOfAnotherDigestAndSaysSo) {
  join();
  sender_.greeted();
  Welcome welcome = memory_.welcome();
  welcome.digest_number = kDigestNumber - 1;
  welcome.offer = "fake";
  sender_.say(welcome, {memory_.page.descriptor(), lease_.get()});
  const std::string says = cat("digest function ", kDigestNumber - 1, ", expected ", kDigestNumber);
  EXPECT_THAT(sender_.expect<Bye>().why, testing::HasSubstr(says));
  EXPECT_THAT(receiver_->wait_ready(patience()).message(), testing::HasSubstr(says));
}

TEST_F(SessionTest, TellsASenderThatBreaksTheProtocolWhatWasWrong) {
  join();
  sender_.greeted();
  sender_.say(Hello{});  // which needs a name
  EXPECT_THAT(sender_.expect<Bye>().why, testing::HasSubstr("the peer broke the protocol: hello, key \"worker\""));
  EXPECT_EQ(sender_.greeted().worker, "a");
}

// Hundreds of workers with another model must not keep a sender busy.
TEST_F(SessionTest, AfterAFinalRefusalItPausesLongerEachTimeUntilAnotherSenderComes) {
  join();
  Clock::time_point before{};
  for (int i = 0; i < 3; ++i) {
    sender_.greeted();
    const Clock::time_point now = Clock::now();
    EXPECT_GE(now - before, std::chrono::milliseconds(i * 450));
    before = now;
    sender_.say(Refused{.why = "another model", .final = true});
  }
  EXPECT_THAT(receiver_->wait_ready(patience()).message(), testing::HasSubstr("another model"));
  std::filesystem::remove(folder_.path() / "control.sock");
  test::WireSender next(folder_.path());
  EXPECT_EQ(next.greeted().worker, "a");
}

// It releases a slot after the welcome, before any prepare, and must not unmap it: the sender still uses it.
TEST_F(SessionTest, KeepsTheSlotsOfASenderThatItComesBackTo) {
  join();
  EXPECT_EQ(sender_.greeted().worker, "a");
  welcome();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);  // and the engine is not there yet
  faults_.set("prepare-hang", 1);
  write(3, 2);
  ASSERT_TRUE(faults_.wait_for("prepare-hang", 1, Deadline(patience())));

  const Hello again = sender_.greeted();
  EXPECT_EQ(again.serving, 1u);
  EXPECT_EQ(again.held.size(), 2u);
  flip_to(2);  // its release is queued after the job that hangs
  welcome();
  for (const Deadline deadline(patience()); !receiver_->status().attached && !deadline.passed();)
    std::this_thread::yield();
  faults_.set("prepare-hang", 0);
  EXPECT_EQ(sender_.expect<Released>().slot, (SlotId{test::kEpoch, 0}));
  publish(3, 0);
  flip_to(3);
}

// The sender was lost before the engine yielded, so nothing was written.
TEST_F(SessionTest, OfASingleCopyReadsOnWhereItHadNotYielded) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  prepare(2, 0, {0});
  sender_.say(Sealed{.version = 1, .digest = std::nullopt});  // passed over; received after the prepare
  come_back();
  EXPECT_EQ(receiver_->status().state, ReceiverState::kServing);
  const Flip flip = receiver_->commit();
  EXPECT_FALSE(flip.poisoned);
  EXPECT_EQ(flip.version, 1u);
}

// A version that it had prepared before it came back lay in the slot of the one that it serves now.
TEST_F(SessionTest, AFollowerLetsGoOfNothingThatItServes) {
  join(1, 2);
  come_back();
  publish(1, 0);
  flip_to(1);
  write(2, 1);
  EXPECT_EQ(sender_.expect<Prepared>().version, 2u);
  EXPECT_EQ(come_back().held.size(), 2u);
  publish(4, 1);
  flip_to(4);
  const Message said = next_but<Ack>();  // there may be one more ack, for being ahead of `decided`
  ASSERT_TRUE(std::holds_alternative<Released>(said)) << "found " << name_of(said);
  EXPECT_EQ(std::get<Released>(said).slot, (SlotId{test::kEpoch, 0}));
}

// Whatever the sender promised: engines never go back to older weights, nor to others under the same number.
TEST_F(SessionTest, TakesNoOlderVersion) {
  join();
  come_back();
  publish(5, 0);
  flip_to(5);
  prepare(4, 1);
  EXPECT_THAT(sender_.expect<Bye>().why,
              testing::AllOf(testing::HasSubstr("has version 5 of epoch 3"), testing::HasSubstr("offered version 4")));
  EXPECT_EQ(come_back().serving, 5u);
  publish(6, 1);
  flip_to(6);
}

TEST_F(SessionTest, TakesNoSenderOfAnOlderEpoch) {
  join();
  come_back();
  publish(5, 0);
  flip_to(5);
  EXPECT_EQ(sender_.greeted().serving, 5u);
  Welcome older = memory_.welcome();
  older.epoch = test::kEpoch - 1;
  older.offer = "fake";
  sender_.say(older, {memory_.page.descriptor(), lease_.get()});
  Message said = next_but<Released>();
  ASSERT_TRUE(std::holds_alternative<Bye>(said)) << name_of(said);
  EXPECT_THAT(std::get<Bye>(said).why, testing::HasSubstr("is offered epoch 2"));
  EXPECT_EQ(receiver_->status().state, ReceiverState::kServing);
}

// The sender that listened there was killed, and another process keeps its socket open: no one will ever answer.
TEST_F(SessionTest, GivesUpAListenerThatNeverAnswers) {
  endpoint_options_ = "?heartbeat=20ms&suspect_after=300ms";
  join();
  sender_.greeted();  // and does not answer
  EXPECT_EQ(sender_.greeted(/*hangs_up=*/false).worker, "a") << "it tried again by itself";
}

TEST_F(SessionTest, SaysOnceThatItsEndpointIsGone) {
  endpoint_options_ = "?heartbeat=20ms&suspect_after=60s";
  join();
  come_back();
  for (const Deadline deadline(patience()); !receiver_->status().attached && !deadline.passed();)
    std::this_thread::yield();
  std::filesystem::remove(folder_.path() / "control.sock");
  for (const Deadline deadline(patience()); said_gone_ == 0 && !deadline.passed();) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(said_gone_, 1);
  EXPECT_THAT(receiver_->wait_ready(absl::ZeroDuration()).ToString(),
              testing::HasSubstr("control.sock was removed: this worker stays connected"));
}

// The next flip took it for an error of the previous version, and cleared it.
TEST_F(SessionTest, SaysThatItsEndpointIsGoneUntilItIsBack) {
  endpoint_options_ = "?heartbeat=10ms&suspect_after=60s";
  join();
  come_back();
  const std::filesystem::path socket = folder_.path() / "control.sock", aside = folder_.path() / "aside";
  const auto is_gone = [this] {
    return message_of(receiver_->status().error).find("control.sock was removed") != std::string_view::npos;
  };
  const auto wait_until_gone = [&](bool gone) {
    for (const Deadline deadline(patience()); is_gone() != gone && !deadline.passed();) std::this_thread::yield();
    return is_gone() == gone;
  };
  for (const std::uint32_t slot : {0u, 1u}) {
    const Version version = slot + 1;
    std::filesystem::rename(socket, aside);
    EXPECT_TRUE(wait_until_gone(true));
    publish(version, slot);
    flip_to(version);
    EXPECT_TRUE(is_gone()) << receiver_->status().error;
    std::filesystem::rename(aside, socket);
    EXPECT_TRUE(wait_until_gone(false));
  }
  std::filesystem::rename(socket, aside);
  EXPECT_TRUE(wait_until_gone(true));
  sender_.hang_up();
  std::filesystem::rename(aside, socket);
  come_back();
  for (const Deadline deadline(patience()); !receiver_->status().attached && !deadline.passed();)
    std::this_thread::yield();
  EXPECT_THAT(receiver_->status().error, IsOk());
}

// A worker that is alone learns the decision with the seal.
TEST_F(SessionTest, FlipsToWhatWasDecidedAheadOnceItIsPrepared) {
  join();
  come_back();
  tell(1, 0);
  memory_.page.seal(0, 1, memory_.layout.bytes(), std::nullopt);
  sender_.say(Sealed{.version = 1, .digest = std::nullopt, .decided = true});
  EXPECT_EQ(sender_.expect<Prepared>().version, 1u);
  flip_to(1);
}

TEST_F(SessionTest, NeverFlipsToWhatWasDecidedAheadAndCannotBePrepared) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  tell(2, 1);
  // The control page names no version there.
  sender_.say(Sealed{.version = 2, .digest = std::nullopt, .decided = true});
  EXPECT_EQ(sender_.expect<Failed>().version, 2u);
  EXPECT_EQ(receiver_->commit().version, 1u);
  sender_.say(Abort{.version = 2});
  EXPECT_EQ(sender_.expect<Released>().slot.index, 1u);
  publish(3, 1);
  flip_to(3);
}

// A second preparation would begin while the engine takes the first one.
TEST_F(SessionTest, LeavesASenderThatSealsAVersionTwice) {
  join();
  come_back();
  tell(1, 0);
  seal(1, 0);
  seal(1, 0);
  sender_.greeted(/*hangs_up=*/false);
  welcome();
  publish(2, 1);
  flip_to(2);
}

// It was sent a version again to which rank 0 had it flip meanwhile.
TEST_F(SessionTest, AFollowerAnswersACommitThatItIsAheadOf) {
  join(1, 2);
  come_back();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);
  come_back();
  write(2, 1);
  EXPECT_EQ(sender_.expect<Prepared>().version, 2u);
  flip_to(2);
  sender_.say(Decided{.version = 2});
  const Message said = next_but<Released>();
  EXPECT_TRUE(std::holds_alternative<Ack>(said)) << "found " << name_of(said);
}

// It had not yet prepared the version that it was sent again: the sender still waits for that.
TEST_F(SessionTest, AFollowerPreparesWhatItIsAheadOf) {
  join(1, 2);
  come_back();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);
  come_back();
  tell(2, 1);
  flip_to(2);
  seal(2, 1);
  Message said = next_but<Released>();
  ASSERT_TRUE(std::holds_alternative<Prepared>(said)) << "found " << name_of(said);
  sender_.say(Decided{.version = 2});
  said = next_but<Released>();
  EXPECT_TRUE(std::holds_alternative<Ack>(said)) << "found " << name_of(said);
}

}  // namespace
}  // namespace bascule
