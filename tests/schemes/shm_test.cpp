// shm alone: its slots, the contents of an offer, and the offers that a reader refuses.
#include <bascule/schemes/shm/shm.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/status.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/messages.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = 5000;
constexpr Epoch kEpoch = 3;

class ShmTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < 2; ++i) {
      auto memory = sender_->make_slot({kEpoch, i}, layout_, kHost);
      ASSERT_THAT(memory, IsOk());
      ASSERT_THAT(sender_->seal_slot(*memory), IsOk());
      memory_.push_back(*std::move(memory));
    }
  }
  Offer offer() {
    const std::vector<OfferedSlot> slots = {{.id = {kEpoch, 0}, .memory = &memory_[0]},
                                            {.id = {kEpoch, 1}, .memory = &memory_[1]}};
    auto offer = sender_->offer(1, ConnectionKind::kUnixSocket, slots);
    EXPECT_THAT(offer, IsOk());
    return offer.ok() ? *std::move(offer) : Offer{};
  }
  ReceivedOffer received() {
    const Offer sent = offer();
    ReceivedOffer offer{
        .bytes = sent.bytes, .descriptors = {}, .slots = {{kEpoch, 0}, {kEpoch, 1}}, .slot_bytes = kBytes};
    for (const int fd : sent.descriptors) offer.descriptors.emplace_back(::dup(fd));
    return offer;
  }
  static Publication publication(SlotId slot) {
    return {.version = 1, .slot = slot, .bytes = kBytes, .digest = std::nullopt};
  }

  const Scheme scheme_ = shm_scheme();
  std::vector<SlotMemory> memory_;
  const Layout layout_ = Layout::arrange({{"weight", DType::kU8, {kBytes}}}, {}).value();
  const std::unique_ptr<SenderTransport> sender_ = scheme_.make_sender(Endpoint{}, kEpoch).value();
  const std::unique_ptr<ReceiverTransport> receiver_ = scheme_.make_receiver(Endpoint{});
  const Deadline deadline_{absl::Minutes(1)};
};

TEST_F(ShmTest, OffersOneDescriptorASlot) {
  EXPECT_THAT(offer().descriptors, ElementsAre(memory_[0].descriptor.get(), memory_[1].descriptor.get()));
}

TEST_F(ShmTest, ReadsInPlaceWhatTheSenderWrote) {
  ASSERT_THAT(receiver_->accept(received()), IsOk());
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto view = receiver_->prepare(publication({kEpoch, i}), deadline_);
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(view->slot, (SlotId{kEpoch, i}));
    ASSERT_EQ(view->bytes.size(), kBytes);
    memory_[i].writable()[kBytes - 1] = static_cast<std::byte>(i + 1);
    EXPECT_EQ(view->bytes[kBytes - 1], static_cast<std::byte>(i + 1));
  }
}

TEST_F(ShmTest, MapsASlotOnce) {
  ASSERT_THAT(receiver_->accept(received()), IsOk());
  const SlotId slot{kEpoch, 0};
  const std::byte* const address = receiver_->prepare(publication(slot), deadline_)->bytes.data();
  receiver_->end_read(slot);
  EXPECT_EQ(receiver_->prepare(publication(slot), deadline_)->bytes.data(), address);
}

TEST_F(ShmTest, ReadsOnAfterTheSenderIsGone) {
  ASSERT_THAT(receiver_->accept(received()), IsOk());
  memory_[0].writable()[0] = std::byte{42};
  const auto view = receiver_->prepare(publication({kEpoch, 0}), deadline_);
  ASSERT_THAT(view, IsOk());
  memory_.clear();
  EXPECT_EQ(view->bytes[0], std::byte{42});
}

TEST_F(ShmTest, RefusesAnotherNumberOfDescriptors) {
  ReceivedOffer offer = received();
  offer.descriptors.pop_back();
  EXPECT_THAT(receiver_->accept(std::move(offer)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected 2 descriptors, one for each slot, found 1")));
}

TEST_F(ShmTest, RefusesMemoryThatIsTooSmall) {
  ReceivedOffer offer = received();
  offer.slot_bytes = 1 << 20;
  EXPECT_THAT(receiver_->accept(std::move(offer)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has 8192 bytes, expected at least 1048576")));
}

TEST_F(ShmTest, RefusesMemoryThatTheSenderCouldTakeAway) {
  ReceivedOffer offer = received();
  offer.descriptors[1].reset(::memfd_create("bascule-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(offer.descriptors[1].get(), kBytes), 0);
  EXPECT_THAT(receiver_->accept(std::move(offer)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not sealed")));
}

TEST_F(ShmTest, RefusesASlotThatWasNotOffered) {
  ASSERT_THAT(receiver_->accept(received()), IsOk());
  for (const SlotId slot : {SlotId{kEpoch, 2}, SlotId{kEpoch + 1, 0}})
    EXPECT_THAT(receiver_->prepare(publication(slot), deadline_),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("was not offered")));
}

}  // namespace
}  // namespace bascule
