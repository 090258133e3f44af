#include <bascule/receiver/attachment.h>

#include <gmock/gmock.h>

#include <cstring>

#include "attached.h"
#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::kEpoch;
using test::SenderMemory;
using test::StatusIs;
using testing::HasSubstr;

SenderMemory sender_memory() {
  return SenderMemory::make({{"small", DType::kU8, {3}}, {"large", DType::kF32, {4, 4}}, {"none", DType::kI8, {0}}},
                            {{"alias", "large"}});
}

TEST(Attachment, ReadsTensorsInThePlaceWhereTheSenderWritesThem) {
  SenderMemory sender = sender_memory();
  const auto attachment = sender.attach();
  ASSERT_THAT(attachment, IsOk());
  const auto ready = (*attachment)->prepare(sender.publication(1, 1), Deadline(absl::Minutes(1)));
  ASSERT_THAT(ready, IsOk());
  EXPECT_EQ(ready->view.bytes.size(), sender.layout.bytes());
  for (std::byte& byte : sender.slots[1].writable()) byte = std::byte{0x11};
  for (const TensorView& tensor : ready->weights->tensors()) {
    const Placement& placed = *sender.layout.find(tensor.name);
    EXPECT_EQ(tensor.dtype, placed.spec.dtype);
    EXPECT_TRUE(std::ranges::equal(tensor.shape, placed.spec.shape));
    EXPECT_EQ(tensor.data, ready->view.bytes.data() + placed.offset) << tensor.name;
    for (std::uint64_t i = 0; i < placed.bytes; ++i) EXPECT_EQ(tensor.data[i], std::byte{0x11});
  }
}

TEST(Attachment, FindsTensorsByEachOfTheirNames) {
  const SenderMemory sender = sender_memory();
  const auto attachment = sender.attach();
  ASSERT_THAT(attachment, IsOk());
  const auto ready = (*attachment)->prepare(sender.publication(1, 0), Deadline(absl::Minutes(1)));
  ASSERT_THAT(ready, IsOk());
  ASSERT_EQ(ready->weights->tensors().size(), 4);
  EXPECT_EQ(ready->weights->find("alias")->data, ready->weights->find("large")->data);
  EXPECT_EQ(ready->weights->find("alias")->name, "alias");
  EXPECT_EQ(ready->weights->find("other"), nullptr);
  EXPECT_TRUE(std::ranges::is_sorted(ready->weights->tensors(), {}, &TensorView::name));
}

TEST(Attachment, KeepsTheViewsOfASlotFromVersionToVersion) {
  const SenderMemory sender = sender_memory();
  const auto attachment = sender.attach();
  ASSERT_THAT(attachment, IsOk());
  const Deadline deadline(absl::Minutes(1));
  const auto first = (*attachment)->prepare(sender.publication(1, 0), deadline)->weights;
  const auto other = (*attachment)->prepare(sender.publication(2, 1), deadline)->weights;
  (*attachment)->end_read({kEpoch, 0});
  EXPECT_EQ((*attachment)->prepare(sender.publication(3, 0), deadline)->weights, first);
  EXPECT_NE(first, other);
}

// Notes which slots were returned to the scheme.
class NotingTransport final : public ReceiverTransport {
 public:
  NotingTransport(std::unique_ptr<ReceiverTransport> slots, std::vector<SlotId>& ended)
      : slots_(std::move(slots)), ended_(ended) {}
  absl::Status accept(ReceivedOffer offer) override { return slots_->accept(std::move(offer)); }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    return slots_->prepare(publication, deadline);
  }
  void end_read(SlotId slot) override { ended_.push_back(slot); }

 private:
  const std::unique_ptr<ReceiverTransport> slots_;
  std::vector<SlotId>& ended_;
};

// A worker that is given the version that it serves again has it twice.
TEST(Attachment, KeepsASlotUntilAllThatWasPreparedThereIsReleased) {
  const SenderMemory sender = sender_memory();
  std::vector<SlotId> ended;
  Scheme scheme = *find_scheme("shm").value();
  scheme.make_receiver = [&, shm = scheme.make_receiver](const Endpoint& endpoint) {
    return std::make_unique<NotingTransport>(shm(endpoint), ended);
  };
  const auto attachment = Attachment::make(scheme, Endpoint{}, sender.welcome(), sender.descriptors());
  ASSERT_THAT(attachment, IsOk());
  const Deadline deadline(absl::Minutes(1));
  for (int i = 0; i < 2; ++i) EXPECT_THAT((*attachment)->prepare(sender.publication(1, 0), deadline), IsOk());
  (*attachment)->end_read({kEpoch, 0});
  EXPECT_TRUE(ended.empty());
  (*attachment)->end_read({kEpoch, 0});
  EXPECT_EQ(ended, std::vector{(SlotId{kEpoch, 0})});
  (*attachment)->end_read({kEpoch, 0});
  EXPECT_EQ(ended.size(), 1u);
}

TEST(Attachment, RefusesAPublicationOfAnotherSize) {
  const SenderMemory sender = sender_memory();
  const auto attachment = sender.attach();
  ASSERT_THAT(attachment, IsOk());
  Publication publication = sender.publication(9, 0);
  publication.bytes += 1;
  EXPECT_THAT((*attachment)->prepare(publication, Deadline(absl::Minutes(1))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("version 9 has 68 bytes, expected 67")));
}

TEST(Attachment, RefusesASlotThatWasNotOffered) {
  const SenderMemory sender = sender_memory();
  const auto attachment = sender.attach();
  ASSERT_THAT(attachment, IsOk());
  EXPECT_THAT((*attachment)->prepare(sender.publication(1, 2), Deadline(absl::Minutes(1))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("slot 2 was not offered")));
}

TEST(Attachment, RefusesAWelcomeWhoseDescriptorsAreNotWhatItSays) {
  const SenderMemory sender = sender_memory();
  const Scheme& shm = *find_scheme("shm").value();
  EXPECT_THAT(Attachment::make(shm, Endpoint{}, sender.welcome(), {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("without a control page")));

  std::vector<UniqueFd> swapped = sender.descriptors();
  std::swap(swapped.front(), swapped.back());
  EXPECT_THAT(Attachment::make(shm, Endpoint{}, sender.welcome(), std::move(swapped)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("control page")));

  Welcome later = sender.welcome();
  later.epoch = kEpoch + 1;
  EXPECT_THAT(Attachment::make(shm, Endpoint{}, std::move(later), sender.descriptors()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("of epoch 3, expected 4")));

  Welcome larger = sender.welcome();
  larger.layout = Layout::arrange({{"w", DType::kU8, {1 << 20}}}, {}).value();
  EXPECT_THAT(Attachment::make(shm, Endpoint{}, std::move(larger), sender.descriptors()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected at least 1048576")));
}

}  // namespace
}  // namespace bascule
