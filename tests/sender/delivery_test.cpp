#include "sender/delivery.h"

#include <gmock/gmock.h>

#include <future>
#include <optional>

#include "transport/messages.h"
#include "transport/text.h"

namespace bascule {
namespace {

using testing::ElementsAre;

// Lets a test hold a delivery, and notes what was asked.
class Gated final : public SenderTransport {
 public:
  absl::StatusOr<Offer> admit(WorkerId, const Hello&, std::span<const OfferedSlot>) override { return Offer{}; }
  void dismiss(WorkerId) override {}
  absl::Status deliver(const Publication& publication, std::span<const WorkerId> workers, Deadline) override {
    delivered.push_back(publication.version);
    addressed.assign(workers.begin(), workers.end());
    if (publication.version == 1) {
      started.set_value();
      open.get_future().wait();
    }
    return publication.version == 2 ? unavailable("link down") : absl::OkStatus();
  }

  std::vector<Version> delivered;
  std::vector<WorkerId> addressed;
  std::promise<void> started, open;
};

Delivery::Job job(Version version, std::vector<WorkerId> workers, std::promise<absl::Status>& done) {
  return {.publication = {.version = version, .slot = {}, .bytes = 0, .digest = std::nullopt},
          .workers = std::move(workers),
          .deadline = Deadline(absl::Minutes(1)),
          .done = [&done](absl::Status status) { done.set_value(std::move(status)); }};
}

TEST(Delivery, RunsJobsInOrderAndPassesOnWhatTheSchemeSays) {
  Gated transport;
  std::promise<absl::Status> first, second, third;
  Delivery delivery(transport);
  delivery.submit(job(1, {}, first));
  delivery.submit(job(2, {}, second));
  delivery.submit(job(3, {7, 8}, third));
  transport.started.get_future().wait();  // submit() waited for none of it
  transport.open.set_value();
  EXPECT_TRUE(first.get_future().get().ok());
  EXPECT_EQ(second.get_future().get(), unavailable("link down"));
  EXPECT_TRUE(third.get_future().get().ok());
  EXPECT_THAT(transport.delivered, ElementsAre(1, 2, 3));
  EXPECT_THAT(transport.addressed, ElementsAre(7, 8));
}

TEST(Delivery, FinishesTheJobUnderWayAndDropsTheRest) {
  Gated transport;
  std::promise<absl::Status> first;
  auto second = std::make_unique<std::promise<absl::Status>>();
  std::future<absl::Status> dropped = second->get_future();
  std::optional<Delivery> delivery(std::in_place, transport);
  delivery->submit(job(1, {}, first));
  transport.started.get_future().wait();
  Delivery::Job waiting = job(3, {}, *second);
  waiting.done = [promise = std::shared_ptr(std::move(second))](absl::Status status) { promise->set_value(status); };
  delivery->submit(std::move(waiting));
  std::thread opener([&] { transport.open.set_value(); });
  delivery.reset();
  opener.join();
  EXPECT_TRUE(first.get_future().get().ok());
  // The destructor and the gate race: the second job ran, or was dropped whole.
  if (transport.delivered.size() == 1) {
    EXPECT_THROW(dropped.get(), std::future_error);
  } else {
    EXPECT_TRUE(dropped.get().ok());
  }
}

}  // namespace
}  // namespace bascule
