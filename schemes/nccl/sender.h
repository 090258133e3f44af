// The sender's end of nccl: slots on the trainer's device, and deliveries through communicator groups.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/dependencies.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class Sender final : public SenderTransport {
 public:
  static absl::StatusOr<std::unique_ptr<SenderTransport>> make(const Dependencies& dependencies,
                                                               const Endpoint& endpoint);
  ~Sender() override;

  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override;
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) override;
  void remove(WorkerId worker) override;
  Delivery* delivery() override;

 private:
  class Shared;
  explicit Sender(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;  // the communicators' threads also have it
};

}  // namespace bascule::inline v0::nccl
