#include <bascule/schemes/cuda_ipc/cuda_ipc.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <bascule/schemes/cuda_ipc/offer.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/text.h>

namespace bascule::inline v0 {
namespace {

class CudaIpcSender final : public SenderTransport {
 public:
  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int device) override {
    if (device == kHost) return unimplemented("cuda-ipc: the tensors lie in host memory; use shm");
    if (!device_) {
      BASCULE_ASSIGN(device_, cuda::find_device(device));
    }
    // Mapping and descriptor keep the memory; the allocation's own handle would be lost where the device is reset.
    absl::StatusOr<cuda::Allocation> made = cuda::Allocation::make(device, layout.bytes());
    if (absl::IsUnimplemented(made.status())) return annotate(made.status(), "cuda-ipc needs that (use shm)");
    BASCULE_TRY(made.status());
    const auto mapping = std::make_shared<cuda::DeviceMapping>();
    BASCULE_ASSIGN(*mapping, cuda::DeviceMapping::map(*made, Access::kReadWrite, device));
    SlotMemory memory;
    BASCULE_ASSIGN(memory.descriptor, made->export_descriptor());
    memory.bytes = layout.bytes();
    memory.device = device;
    if (offer_.empty()) offer_ = to_bytes({.device = device_->uuid, .slot_bytes = made->bytes()});
    memory.description = cat("memory of ", device_->name, ", ", cuda::to_string(device_->uuid));
    memory.device_memory = std::shared_ptr<std::byte>(mapping, mapping->data());
    return memory;
  }

  absl::StatusOr<Offer> offer(WorkerId, std::span<const OfferedSlot> slots) override {
    Offer offer{.bytes = offer_, .descriptors = {}};
    for (const OfferedSlot& slot : slots) offer.descriptors.push_back(slot.memory->descriptor.get());
    return offer;
  }

 private:
  std::optional<cuda::Device> device_;
  std::string offer_;  // the same for every slot; made with the first one, before any worker is admitted
};

class CudaIpcReceiver final : public ReceiverTransport {
 public:
  explicit CudaIpcReceiver(int device) : device_(device) {}

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
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      BASCULE_ASSIGN(const cuda::Allocation allocation,
                     cuda::Allocation::import(home->ordinal, offer.descriptors[i].get(), place.slot_bytes, reads_on));
      absl::StatusOr<cuda::DeviceMapping> mapping = cuda::DeviceMapping::map(allocation, Access::kReadOnly, reads_on);
      if (!mapping.ok())
        return annotate(mapping.status(), "cuda-ipc: the slots cannot be read where they lie (use shm)");
      slots_.insert_or_assign(offer.slots[i], Slot{.mapping = *std::move(mapping), .home = home->ordinal});
    }
    return absl::OkStatus();
  }

  std::optional<SlotView> find(SlotId slot) const override {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return std::nullopt;
    const auto& [mapping, home] = found->second;
    return SlotView{.slot = slot, .bytes = {mapping.data(), mapping.bytes()}, .device = home};
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline) override {
    const auto slot = slots_.find(publication.slot);
    if (slot == slots_.end()) return invalid_argument("cuda-ipc: slot ", publication.slot.index, " was not offered");
    const cuda::DeviceMapping& mapping = slot->second.mapping;
    return SlotView{.slot = publication.slot, .bytes = {mapping.data(), mapping.bytes()}, .device = mapping.device()};
  }

  void release(SlotId) override {}  // mapped once, for every version to come
  void unmap(SlotId slot) override { slots_.erase(slot); }

 private:
  struct Slot {
    cuda::DeviceMapping mapping;
    int home = kHost;  // the device whose memory it is
  };
  const int device_;  // to read on; kHost: the sender's
  std::map<SlotId, Slot> slots_;
};

}  // namespace

Scheme cuda_ipc_scheme() {
  return {.name = "cuda-ipc",
          .needs_descriptors = true,
          .maps_once = true,
          .on_device = true,
          .keeps_files = false,
          .make_sender = [](const Endpoint&, Epoch) { return std::make_unique<CudaIpcSender>(); },
          .make_receiver = [](const Endpoint& endpoint) { return std::make_unique<CudaIpcReceiver>(endpoint.device); }};
}

}  // namespace bascule::inline v0
