// Schemes that break their contract: the sender names the violation.
#include "sender/wired.h"  // first: see there

#include <functional>
#include <memory>
#include <utility>

#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// shm, with a test's changes.
struct Changes {
  std::function<void(SlotMemory&)> slot = [](SlotMemory&) {};
  std::function<void(Offer&)> offer = [](Offer&) {};
};
class Odd final : public SenderTransport {
 public:
  Odd(std::unique_ptr<SenderTransport> shm, Changes changes) : shm_(std::move(shm)), changes_(std::move(changes)) {}
  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override {
    BASCULE_ASSIGN(SlotMemory memory, shm_->make_slot(slot, layout, device));
    changes_.slot(memory);
    return memory;
  }
  void unmake_slot(SlotId slot) override { shm_->unmake_slot(slot); }
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) override {
    BASCULE_ASSIGN(Offer offer, shm_->offer(worker, kind, slots));
    changes_.offer(offer);
    return offer;
  }

 private:
  const std::unique_ptr<SenderTransport> shm_;
  const Changes changes_;
};

class OddScheme : public test::Wired {
 protected:
  void listen_with(Changes changes) {
    scheme_ = *find_scheme("shm").value();
    scheme_.make_sender = [make = scheme_.make_sender, changes = std::move(changes)](
                              const Endpoint& endpoint,
                              Epoch epoch) -> absl::StatusOr<std::unique_ptr<SenderTransport>> {
      BASCULE_ASSIGN(std::unique_ptr<SenderTransport> shm, make(endpoint, epoch));
      return std::make_unique<Odd>(std::move(shm), changes);
    };
    auto made = Sender::listen({.endpoint = cat("shm://", folder_.path().string()), .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    model_.step(1);
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  }
  // Why a worker is refused that gets the scheme's offer.
  std::string refusal() {
    const auto worker = connect();
    worker->say(test::WireWorker::hello("w", 1));
    return worker->expect<Refused>().why;
  }

  Scheme scheme_;
};

TEST_F(OddScheme, OneWithoutTheCallsOfAnEndIsRefusedThere) {
  const Scheme none{.name = "none", .make_sender = {}, .make_receiver = {}};
  const std::string endpoint = cat("none://", folder_.path().string());
  EXPECT_THAT(Sender::listen({.endpoint = endpoint, .scheme = &none}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("scheme none has no make_sender")));
  EXPECT_THAT(Receiver::connect({.endpoint = endpoint, .worker = "w", .scheme = &none}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("scheme none has no make_receiver")));
}

TEST_F(OddScheme, ASlotWithoutMemoryIsNotSentIn) {
  listen_with({.slot = [](SlotMemory& memory) { memory = SlotMemory{}; }});
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kInternal, HasSubstr("scheme shm made a slot of 0 bytes")));
}

TEST_F(OddScheme, ASlotThatIsShorterThanItSaysIsNotWritten) {
  listen_with({.slot = [](SlotMemory& memory) { memory.data_offset += 4096; }});
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kInternal, AllOf(HasSubstr("scheme shm made a slot of "),
                                                                     HasSubstr(" of them mapped, expected "))));
}

TEST_F(OddScheme, AnOfferThatNoMessageCarriesRefusesTheWorkerByName) {
  listen_with({.offer = [](Offer& offer) { offer.descriptors.resize(kMostOffered + 1, 0); }});
  ASSERT_THAT(sender_->send(), IsOk());
  EXPECT_THAT(refusal(), HasSubstr(cat("scheme shm offers ", kMostOffered + 1, " descriptors, expected ", kMostOffered,
                                       " at most")));
}

TEST_F(OddScheme, AnOfferOfADescriptorThatIsNotOpenRefusesTheWorkerByName) {
  listen_with({.offer = [](Offer& offer) { offer.descriptors.back() = 1 << 20; }});
  ASSERT_THAT(sender_->send(), IsOk());
  EXPECT_THAT(refusal(), HasSubstr("scheme shm offers descriptor 1048576, which is not open"));
}

}  // namespace
}  // namespace bascule
