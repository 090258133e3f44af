// The sender's end of nccl: slots on the trainer's device, and deliveries through communicator groups.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0::nccl {

class Sender final : public SenderTransport, public Delivery {
 public:
  static absl::StatusOr<std::unique_ptr<SenderTransport>> make(const Dependencies& dependencies,
                                                               const Endpoint& endpoint);
  ~Sender() override { close(); }

  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override;
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) override;
  void remove(WorkerId worker) override;
  Delivery* delivery() override { return this; }

  void open(WorkerLine& line) override;
  bool starts_while_written() const override { return true; }
  void deliver(DeliveryOrder order, Done done) override;
  void stop(std::uint64_t number) override;
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) override;
  void close() override;

 private:
  class Desk;
  explicit Sender(std::shared_ptr<Desk> desk) : desk_(std::move(desk)) {}
  const std::shared_ptr<Desk> desk_;  // threads of communicators have it, too
};

}  // namespace bascule::inline v0::nccl
