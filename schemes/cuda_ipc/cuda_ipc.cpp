#include <bascule/schemes/cuda_ipc/cuda_ipc.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
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
  CudaIpcSender(RelayShape relay, DigestMode digest, cuda::ForNetwork network, std::size_t slots)
      : network_(network), slots_(slots) {
    if (relay != RelayShape::kOff) dispatcher_.emplace(relay, digest);
  }

  absl::Status check(const Layout& layout) override {
    if (!layout.division()) return absl::OkStatus();
    if (dispatcher_)
      return unimplemented("cuda-ipc: relay= hands on slots of one GPU, and these lie on the GPUs of ",
                           layout.division()->regions, " ranks; leave relay= out");
    if (layout.division()->regions * slots_ > kMostOffered)
      return unimplemented("cuda-ipc: ", slots_, " slots of ", layout.division()->regions, " ranks need more than ",
                           kMostOffered, " descriptors; use fewer ranks on this host");
    return absl::OkStatus();
  }

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int device) override {
    if (layout.division()) {
      BASCULE_ASSIGN(SlotMemory memory, make_region(layout, 0, device));
      memory.bytes = layout.bytes();
      return memory;
    }
    return allocate(layout.bytes(), device);
  }

  absl::StatusOr<SlotMemory> make_region(const Layout& layout, std::uint32_t region, int device) override {
    const std::uint64_t begin = layout.region_borders()[region], end = layout.region_borders()[region + 1];
    BASCULE_ASSIGN(SlotMemory memory, allocate(end - begin, device));
    BASCULE_TRY(cuda::clear(memory));  // the digest covers the zeros up to the next region
    BASCULE_ASSIGN(CudaIpcRegion place, parse_cuda_ipc_region(memory.place));
    if (begin == end) place.bytes = 0;  // workers map nothing
    // Workers map the regions side by side, so each must end where the next one begins.
    if (end < layout.bytes() && place.bytes != end - begin)
      return unimplemented("cuda-ipc: device ", device, " allocates ", place.bytes, " bytes for a region of ",
                           end - begin, "; regions begin at multiples of ", kRegionGranule);
    memory.place = to_bytes(place);
    return memory;
  }

  absl::StatusOr<SlotMemory> adopt_slot(const SlotHandle& handle, const Layout& layout, int device) override {
    if (layout.division()) return unimplemented("cuda-ipc: slots of several ranks cannot be adopted");
    BASCULE_ASSIGN(const CudaIpcRegion place, parse_cuda_ipc_region(handle.place));
    BASCULE_ASSIGN(const cuda::Device home, cuda::find_device(place.device));
    if (home.ordinal != device || place.bytes < layout.bytes())
      return invalid_argument("cuda-ipc: expected a slot of ", layout.bytes(), " bytes on device ", device, ", found ",
                              place.bytes, " bytes on device ", home.ordinal);
    SlotMemory memory;
    memory.descriptor = ProcessFd::copy_of(handle.descriptor.get());
    if (!memory.descriptor) return errno_status(errno, "keep the memory of a slot");
    BASCULE_ASSIGN(const cuda::Allocation allocation,
                   cuda::Allocation::import(device, memory.descriptor.get(), place.bytes, device));
    const auto mapping = std::make_shared<cuda::DeviceMapping>();
    BASCULE_ASSIGN(*mapping, cuda::DeviceMapping::map(allocation, Access::kReadOnly, device));
    memory.device_memory = std::shared_ptr<std::byte>(mapping, mapping->data());
    memory.bytes = layout.bytes();
    memory.device = device;
    memory.place = handle.place;
    memory.description = cat("memory of ", home.name, ", ", cuda::to_string(home.uuid), ", read-only");
    return memory;
  }

  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind, std::span<const OfferedSlot> slots) override {
    if (dispatcher_) dispatcher_->joined(worker);
    CudaIpcOffer offered{.regions = {}, .relays = dispatcher_.has_value()};
    Offer offer;
    for (const OfferedSlot& slot : slots) {
      const bool first = offered.regions.empty();
      const auto add = [&](const ProcessFd& descriptor, std::string_view place) -> absl::Status {
        BASCULE_ASSIGN(const CudaIpcRegion region, place.empty() ? CudaIpcRegion{} : parse_cuda_ipc_region(place));
        if (first) offered.regions.push_back(region);
        if (region.bytes > 0) offer.descriptors.push_back(descriptor.get());
        return absl::OkStatus();
      };
      BASCULE_TRY(add(slot.memory->descriptor, slot.memory->place));
      for (const OtherRegion& other : slot.memory->others) BASCULE_TRY(add(other.descriptor, other.place));
    }
    offer.bytes = to_bytes(offered);
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
  absl::StatusOr<SlotMemory> allocate(std::uint64_t bytes, int device) {
    if (device == kHost) return unimplemented("cuda-ipc: the tensors lie in host memory; use shm");
    if (!device_) {
      BASCULE_ASSIGN(device_, cuda::find_device(device));
    }
    std::uint64_t allocated = 0;
    absl::StatusOr<SlotMemory> memory = cuda::make_device_slot(*device_, bytes, network_, &allocated);
    if (absl::IsUnimplemented(memory.status())) return annotate(memory.status(), "cuda-ipc needs that (use shm)");
    if (memory.ok()) memory->place = to_bytes(CudaIpcRegion{.device = device_->uuid, .bytes = allocated});
    return memory;
  }

  const cuda::ForNetwork network_;  // does another scheme also send the slots to other hosts?
  const std::size_t slots_;
  std::optional<relay::Dispatcher> dispatcher_;  // nullopt: each worker copies from the slots, or reads them
  std::optional<cuda::Device> device_;
};

class CudaIpcReceiver final : public ReceiverTransport {
 public:
  explicit CudaIpcReceiver(const Endpoint& endpoint)
      : device_(endpoint.device), kept_(endpoint.versions_kept), digest_(endpoint.digest) {}

  absl::Status accept(ReceivedOffer offer) override {
    BASCULE_ASSIGN(const CudaIpcOffer places, parse_cuda_ipc_offer(offer.bytes));
    const std::size_t of_slot = places.descriptors();
    if (offer.descriptors.size() != offer.slots.size() * of_slot)
      return invalid_argument("cuda-ipc: expected ", of_slot, " descriptors for each of ", offer.slots.size(),
                              " slots, found ", offer.descriptors.size());
    if (places.slot_bytes() < offer.slot_bytes || of_slot == 0)
      return invalid_argument("cuda-ipc: a slot has ", places.slot_bytes(), " bytes, expected ", offer.slot_bytes);
    std::vector<int> homes;  // of the regions that have bytes
    for (const CudaIpcRegion& region : places.regions) {
      if (region.bytes == 0) continue;
      absl::StatusOr<cuda::Device> home = cuda::find_device(region.device);
      if (!home.ok())
        return annotate(home.status(), "cuda-ipc: the slots lie on a GPU that this process must see (or use shm)");
      homes.push_back(home->ordinal);
    }
    const int reads_on = device_ == kHost ? homes.front() : device_;
    if (reads_on != homes.front())
      BASCULE_TRY(annotate(cuda::find_device(reads_on).status(), "cuda-ipc: the slots are to be read on another GPU"));
    if (places.relays && !end_) {
      if (homes.size() > 1) return invalid_argument("cuda-ipc: slots on several GPUs are not relayed");
      BASCULE_TRY(join_relay(reads_on, homes.front(), offer.slot_bytes));
    }
    // Slots on several GPUs have no home: all GPUs read them where they lie, each byte over its own link.
    const int home = places.regions.size() > 1 ? reads_on : homes.front();
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      absl::StatusOr<cuda::DeviceMapping> mapping =
          map(places, homes, std::span(offer.descriptors).subspan(i * of_slot, of_slot), reads_on);
      if (!mapping.ok())
        return annotate(mapping.status(), "cuda-ipc: the slots cannot be read where they lie (use shm)");
      const auto made = std::make_shared<cuda::DeviceMapping>(*std::move(mapping));
      slots_.insert_or_assign(
          offer.slots[i],
          Slot{.mapping = made, .home = home, .handle = handle_of(places, std::move(offer.descriptors[i * of_slot]))});
      if (relay_receiver_)
        relay_receiver_->add(offer.slots[i], {.bytes = {made->data(), offer.slot_bytes}, .device = home, .owner = made},
                             offer.written);
    }
    return absl::OkStatus();
  }

  std::optional<SlotView> find(SlotId slot) const override {
    if (relay_receiver_) return relay_receiver_->find(slot);
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return std::nullopt;
    const auto& [mapping, home, handle] = found->second;
    return SlotView{.slot = slot,
                    .bytes = {mapping->data(), mapping->bytes()},
                    .device = home,
                    .memory = mapping,
                    .handle = handle};
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    if (relay_receiver_) return relay_receiver_->prepare(publication, deadline);
    const auto slot = slots_.find(publication.slot);
    if (slot == slots_.end()) return invalid_argument("cuda-ipc: slot ", publication.slot.index, " was not offered");
    const auto& [mapping, home, handle] = slot->second;
    return SlotView{.slot = publication.slot,
                    .bytes = {mapping->data(), mapping->bytes()},
                    .device = mapping->device(),
                    .memory = mapping,
                    .handle = handle};
  }

  void end_read(SlotId slot) override {  // a slot stays mapped for later versions
    if (relay_receiver_) relay_receiver_->end_read(slot);
  }
  void unmap(SlotId slot) override {
    if (relay_receiver_) relay_receiver_->remove(slot);
    slots_.erase(slot);
  }
  Reception* reception() override { return end_; }
  ReadsAgain* reads_again() override { return relay_receiver_.get(); }
  std::string path() const override {
    return std::string(relay_receiver_ ? relay::kByRelay : end_ ? relay::kInPlace : "");
  }

 private:
  struct Slot {
    std::shared_ptr<cuda::DeviceMapping> mapping;
    int home = kHost;  // the device that has the memory
    std::shared_ptr<const SlotHandle> handle{};
  };

  // Null for a slot of several regions, which is never handed on.
  static std::shared_ptr<const SlotHandle> handle_of(const CudaIpcOffer& places, UniqueFd descriptor) {
    if (places.regions.size() != 1) return nullptr;
    const auto handle = std::make_shared<SlotHandle>();
    handle->descriptor = std::move(descriptor);
    handle->place = to_bytes(places.regions.front());
    return handle;
  }

  static absl::StatusOr<cuda::DeviceMapping> map(const CudaIpcOffer& places, std::span<const int> homes,
                                                 std::span<const UniqueFd> descriptors, int reads_on) {
    std::vector<cuda::Allocation> allocations;
    for (const CudaIpcRegion& region : places.regions) {
      if (region.bytes == 0) continue;
      const std::size_t i = allocations.size();
      BASCULE_ASSIGN(cuda::Allocation allocation,
                     cuda::Allocation::import(homes[i], descriptors[i].get(), region.bytes, reads_on));
      allocations.push_back(std::move(allocation));
    }
    return cuda::DeviceMapping::map(allocations, Access::kReadOnly, reads_on);
  }

  // A worker on the slots' own device reads them in place, and tells the sender so.
  absl::Status join_relay(int reads_on, int home, std::uint64_t slot_bytes) {
    if (reads_on == home) {
      end_ = &bystander_;
      return absl::OkStatus();
    }
    BASCULE_ASSIGN(relay::RelayMemory memory, relay_memory(reads_on));
    BASCULE_ASSIGN(relay_receiver_, relay::RelayReceiver::make(std::move(memory), slot_bytes, kept_, digest_));
    end_ = relay_receiver_.get();
    return absl::OkStatus();
  }

  const int device_;  // to read on; kHost: the sender's
  const std::size_t kept_;
  const DigestMode digest_;
  std::map<SlotId, Slot> slots_;
  relay::Bystander bystander_;
  std::unique_ptr<relay::RelayReceiver> relay_receiver_;  // if this worker copies and the sender relays
  Reception* end_ = nullptr;                              // the end of a relay, if any
};

}  // namespace

Scheme cuda_ipc_scheme() {
  Scheme scheme = cuda_ipc_facts();
  scheme.make_sender = [](const Endpoint& endpoint, Epoch) {
    return std::make_unique<CudaIpcSender>(relay::kShape.in(endpoint).value_or(RelayShape::kOff), endpoint.digest,
                                           endpoint.listen ? cuda::ForNetwork::kYes : cuda::ForNetwork::kNo,
                                           static_cast<std::size_t>(endpoint.slots));
  };
  scheme.make_receiver = [](const Endpoint& endpoint) { return std::make_unique<CudaIpcReceiver>(endpoint); };
  return scheme;
}

}  // namespace bascule::inline v0
