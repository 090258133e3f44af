#include <bascule/schemes/cuda_ipc/cuda_ipc.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <bascule/schemes/cuda_ipc/offer.h>
#include <bascule/schemes/cuda_ipc/relay_memory.h>
#include <bascule/schemes/relay/bystander.h>
#include <bascule/schemes/relay/dispatcher.h>
#include <bascule/schemes/relay/options.h>
#include <bascule/schemes/relay/relay_receiver.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/cuda/device_slot.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

class CudaIpcSender final : public SenderTransport {
 public:
  CudaIpcSender(RelayShape relay, cuda::ForNetwork network) : network_(network) {
    if (relay != RelayShape::kOff) dispatcher_.emplace(relay);
  }

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int device) override {
    if (device == kHost) return unimplemented("cuda-ipc: the tensors lie in host memory; use shm");
    if (!device_) {
      BASCULE_ASSIGN(device_, cuda::find_device(device));
    }
    std::uint64_t allocated = 0;
    absl::StatusOr<SlotMemory> memory = cuda::make_device_slot(*device_, layout.bytes(), network_, &allocated);
    if (absl::IsUnimplemented(memory.status())) return annotate(memory.status(), "cuda-ipc needs that (use shm)");
    if (memory.ok() && offer_.empty())
      offer_ = to_bytes({.device = device_->uuid, .slot_bytes = allocated, .relays = dispatcher_.has_value()});
    return memory;
  }

  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind, std::span<const OfferedSlot> slots) override {
    if (dispatcher_) dispatcher_->joined(worker);
    Offer offer{.bytes = offer_, .descriptors = {}};
    for (const OfferedSlot& slot : slots) offer.descriptors.push_back(slot.memory->descriptor.get());
    return offer;
  }
  void remove(WorkerId worker) override {
    if (dispatcher_) dispatcher_->removed(worker);
  }
  Delivery* delivery() override { return dispatcher_ ? &*dispatcher_ : nullptr; }
  std::string path(WorkerId worker) const override {
    return std::string(dispatcher_ ? dispatcher_->path_of(worker) : std::string_view());
  }

 private:
  const cuda::ForNetwork network_;               // does another scheme also send the slots to other hosts?
  std::optional<relay::Dispatcher> dispatcher_;  // nullopt: each worker copies from the slots, or reads them
  std::optional<cuda::Device> device_;
  std::string offer_;  // the same for every slot; made with the first one, before any worker is admitted
};

class CudaIpcReceiver final : public ReceiverTransport {
 public:
  explicit CudaIpcReceiver(const Endpoint& endpoint)
      : device_(endpoint.device), kept_(endpoint.versions_kept), digests_(endpoint.digest != DigestMode::kOff) {}

  absl::Status accept(ReceivedOffer offer) override {
    if (offer.descriptors.size() != offer.slots.size())
      return invalid_argument("cuda-ipc: expected ", offer.slots.size(), " descriptors, one for each slot, found ",
                              offer.descriptors.size());
    BASCULE_ASSIGN(const CudaIpcOffer place, parse_cuda_ipc_offer(offer.bytes));
    if (place.slot_bytes < offer.slot_bytes)
      return invalid_argument("cuda-ipc: a slot has ", place.slot_bytes, " bytes, expected ", offer.slot_bytes);
    absl::StatusOr<cuda::Device> home = cuda::find_device(place.device);
    if (!home.ok())
      return annotate(home.status(), "cuda-ipc: the slots lie on a GPU that this process must see (or use shm)");
    const int reads_on = device_ == kHost ? home->ordinal : device_;
    if (reads_on != home->ordinal)
      BASCULE_TRY(annotate(cuda::find_device(reads_on).status(), "cuda-ipc: the slots are to be read on another GPU"));
    if (place.relays && !end_) {
      BASCULE_TRY(join_relay(reads_on, home->ordinal, offer.slot_bytes));
    }
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      BASCULE_ASSIGN(const cuda::Allocation allocation,
                     cuda::Allocation::import(home->ordinal, offer.descriptors[i].get(), place.slot_bytes, reads_on));
      absl::StatusOr<cuda::DeviceMapping> mapping = cuda::DeviceMapping::map(allocation, Access::kReadOnly, reads_on);
      if (!mapping.ok())
        return annotate(mapping.status(), "cuda-ipc: the slots cannot be read where they lie (use shm)");
      const auto made = std::make_shared<cuda::DeviceMapping>(*std::move(mapping));
      slots_.insert_or_assign(offer.slots[i], Slot{.mapping = made, .home = home->ordinal});
      if (relay_receiver_)
        relay_receiver_->add(offer.slots[i],
                             {.bytes = {made->data(), offer.slot_bytes}, .device = home->ordinal, .owner = made},
                             offer.written);
    }
    return absl::OkStatus();
  }

  std::optional<SlotView> find(SlotId slot) const override {
    const auto found = slots_.find(slot);
    if (found == slots_.end() || relay_receiver_) return std::nullopt;
    const auto& [mapping, home] = found->second;
    return SlotView{.slot = slot, .bytes = {mapping->data(), mapping->bytes()}, .device = home, .memory = mapping};
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    if (relay_receiver_) return relay_receiver_->prepare(publication, deadline);
    const auto slot = slots_.find(publication.slot);
    if (slot == slots_.end()) return invalid_argument("cuda-ipc: slot ", publication.slot.index, " was not offered");
    const auto& [mapping, home] = slot->second;
    return SlotView{.slot = publication.slot,
                    .bytes = {mapping->data(), mapping->bytes()},
                    .device = mapping->device(),
                    .memory = mapping};
  }

  void end_read(SlotId slot) override {  // a slot stays mapped for later versions
    if (relay_receiver_) relay_receiver_->end_read(slot);
  }
  void unmap(SlotId slot) override {
    if (relay_receiver_) relay_receiver_->remove(slot);
    slots_.erase(slot);
  }
  Reception* reception() override { return end_; }
  std::string path() const override {
    return std::string(relay_receiver_ ? relay::kByRelay : end_ ? relay::kInPlace : "");
  }

 private:
  struct Slot {
    std::shared_ptr<cuda::DeviceMapping> mapping;
    int home = kHost;  // the device that has the memory
  };

  // A worker on the slots' own device reads them in place, and tells the sender so.
  absl::Status join_relay(int reads_on, int home, std::uint64_t slot_bytes) {
    if (reads_on == home) {
      end_ = &bystander_;
      return absl::OkStatus();
    }
    BASCULE_ASSIGN(relay::RelayMemory memory, relay_memory(reads_on));
    BASCULE_ASSIGN(relay_receiver_, relay::RelayReceiver::make(std::move(memory), slot_bytes, kept_, digests_));
    end_ = relay_receiver_.get();
    return absl::OkStatus();
  }

  const int device_;  // to read on; kHost: the sender's
  const std::size_t kept_;
  const bool digests_;
  std::map<SlotId, Slot> slots_;
  relay::Bystander bystander_;
  std::unique_ptr<relay::RelayReceiver> relay_receiver_;  // if this worker copies and the sender relays
  Reception* end_ = nullptr;                              // the end of a relay, if any
};

}  // namespace

Scheme cuda_ipc_scheme() {
  Scheme scheme = cuda_ipc_facts();
  scheme.make_sender = [](const Endpoint& endpoint, Epoch) {
    return std::make_unique<CudaIpcSender>(relay::kShape.in(endpoint).value_or(RelayShape::kOff),
                                           endpoint.listen ? cuda::ForNetwork::kYes : cuda::ForNetwork::kNo);
  };
  scheme.make_receiver = [](const Endpoint& endpoint) { return std::make_unique<CudaIpcReceiver>(endpoint); };
  return scheme;
}

}  // namespace bascule::inline v0
