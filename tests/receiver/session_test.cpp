// A worker and a sender that comes back, seen from the wire: the test is the sender.
#include "receiver/wire_sender.h"  // first: see there

#include <optional>

#include "receiver/attached.h"
#include "receiver/receiver.h"
#include "support/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule {
namespace {

using test::IsOk;
using test::patience;

class SessionTest : public testing::Test {
 protected:
  // Rank `rank` of `ranks`; alone where it is one.
  void join(std::uint32_t rank = 0, std::uint32_t ranks = 1) {
    auto made = Receiver::connect({.endpoint = "fake://" + folder_.path().string() + "?suspect_after=60s",
                                   .worker = "a",
                                   .group = ranks > 1 ? "tp" : "",
                                   .rank = rank,
                                   .ranks = ranks,
                                   .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
    EXPECT_FALSE(receiver_->commit().changed);  // it looks for a sender from now on
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
  // Up to its seal.
  void write(Version version, std::uint32_t slot) {
    sender_.say(Prepare{.version = version,
                        .slot = {test::kEpoch, slot},
                        .bytes = memory_.layout.bytes(),
                        .offer = std::nullopt,
                        .slots = {0, 1, 2}});
    EXPECT_EQ(sender_.expect<Ready>().version, version);
    memory_.page.seal(slot, version, memory_.layout.bytes(), std::nullopt);
    sender_.say(Sealed{.version = version, .digest = std::nullopt});
  }
  void publish(Version version, std::uint32_t slot) {
    write(version, slot);
    EXPECT_EQ(sender_.expect<Prepared>().version, version);
    sender_.say(Commit{.version = version});
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
  // Both ends of a connection that was lost.
  Hello come_back() {
    Hello hello = sender_.greeted();
    welcome();
    return hello;
  }

  const test::TempFolder folder_;
  test::FakeFaults faults_;
  const Scheme scheme_ = test::fake_scheme(faults_);
  test::SenderMemory memory_ = test::SenderMemory::make({{"w", DType::kF32, {4}}}, {}, 3);
  const UniqueFd lease_{::dup(memory_.page.descriptor())};  // any descriptor: it is only kept
  test::WireSender sender_{folder_.path()};
  std::optional<Receiver> receiver_;
};

// What it released when it was welcomed, and had not been told of a version yet, is not all that there is.
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
  flip_to(2);  // what it lets go of by that stands behind what hangs
  welcome();
  for (const Deadline deadline(patience()); !receiver_->status().attached && !deadline.passed();)
    std::this_thread::yield();
  faults_.set("prepare-hang", 0);
  EXPECT_EQ(sender_.expect<Released>().slot, (SlotId{test::kEpoch, 0}));
  publish(3, 0);
  flip_to(3);
}

// Who had not stepped aside when the sender was lost reads what nobody wrote.
TEST_F(SessionTest, OfASingleCopyReadsOnWhereItHadNotSteppedAside) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  sender_.say(Prepare{
      .version = 2, .slot = {test::kEpoch, 0}, .bytes = memory_.layout.bytes(), .offer = std::nullopt, .slots = {0}});
  sender_.say(Sealed{.version = 1, .digest = std::nullopt});  // passed over; heard behind the prepare
  come_back();
  EXPECT_EQ(receiver_->status().state, ReceiverState::kServing);
  const Flip flip = receiver_->commit();
  EXPECT_FALSE(flip.poisoned);
  EXPECT_EQ(flip.version, 1u);
}

// What it had prepared before it came back lay in the slot of what it serves now.
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
  const Message said = next_but<Ack>();  // there may be one more: that it was ahead of the commit
  ASSERT_TRUE(std::holds_alternative<Released>(said)) << "found " << name_of(said);
  EXPECT_EQ(std::get<Released>(said).slot, (SlotId{test::kEpoch, 0}));
}

// It was told again of what rank 0 had it flip to meanwhile.
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
  sender_.say(Commit{.version = 2});
  const Message said = next_but<Released>();
  EXPECT_TRUE(std::holds_alternative<Ack>(said)) << "found " << name_of(said);
}

}  // namespace
}  // namespace bascule
