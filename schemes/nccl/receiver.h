// The receiver's end of nccl: the worker's own memory on its device (arrivals.h), and its rank in each communicator
// group that it is asked to join (ranks.h). It acts only on the sender's messages, which schemes/nccl/README.md
// describes.
#pragma once

#include <memory>

#include <bascule/schemes/nccl/dependencies.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class Receiver final : public ReceiverTransport, public Reception {
 public:
  Receiver(Dependencies dependencies, const Endpoint& endpoint);
  ~Receiver() override;  // leaves its groups, and waits at most 2 s for that

  absl::Status accept(ReceivedOffer offer) override;
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void end_read(SlotId slot) override;
  std::optional<SlotView> find(SlotId slot) const override;
  Reception* reception() override { return this; }

  void open(std::shared_ptr<SenderLine> line) override;
  void heard(std::string bytes, std::vector<UniqueFd> descriptors) override;
  absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) override;
  void close() override;

 private:
  class Shared;
  const std::shared_ptr<Shared> shared_;  // the communicators' threads also have it
};

}  // namespace bascule::inline v0::nccl
