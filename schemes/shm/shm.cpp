#include <bascule/schemes/shm/shm.h>

#include <map>
#include <utility>

#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

class ShmSender final : public SenderTransport {
 public:
  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int) override {
    return make_unsealed_memfd("bascule-slot", layout.bytes());
  }
  absl::StatusOr<SlotMemory> adopt_slot(const SlotHandle& handle, const Layout& layout, int) override {
    BASCULE_TRY(check_sealed(handle.descriptor.get(), layout.bytes()));
    SlotMemory memory;
    memory.descriptor = ProcessFd::copy_of(handle.descriptor.get());
    if (!memory.descriptor) return errno_status(errno, "keep the memory of a slot");
    BASCULE_ASSIGN(memory.mapping, Mapping::map(memory.descriptor.get(), layout.bytes(), Access::kReadOnly));
    memory.bytes = layout.bytes();
    memory.description = "memfd, read-only";
    return memory;
  }
  absl::Status seal_slot(SlotMemory& memory) override { return seal_memfd(memory.descriptor.get()); }
  absl::StatusOr<Offer> offer(WorkerId, ConnectionKind, std::span<const OfferedSlot> slots) override {
    Offer offer;
    for (const OfferedSlot& slot : slots) offer.descriptors.push_back(slot.memory->descriptor.get());
    return offer;
  }
};

class ShmReceiver final : public ReceiverTransport {
 public:
  absl::Status accept(ReceivedOffer offer) override {
    if (offer.descriptors.size() != offer.slots.size())
      return invalid_argument("shm: expected ", offer.slots.size(), " descriptors, one for each slot, found ",
                              offer.descriptors.size());
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      const int fd = offer.descriptors[i].get();
      BASCULE_TRY(check_sealed(fd, offer.slot_bytes));
      BASCULE_ASSIGN(Mapping mapping, Mapping::map(fd, offer.slot_bytes, Access::kReadOnly));
      const auto handle = std::make_shared<SlotHandle>();
      handle->descriptor = std::move(offer.descriptors[i]);
      slots_.insert_or_assign(offer.slots[i], Slot{.mapping = std::move(mapping), .handle = handle});
    }
    return absl::OkStatus();
  }

  std::optional<SlotView> find(SlotId slot) const override {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return std::nullopt;
    const auto& [mapping, handle] = found->second;
    return SlotView{.slot = slot, .bytes = mapping.bytes(), .memory = mapping.keep(), .handle = handle};
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline) override {
    if (const std::optional<SlotView> found = find(publication.slot)) return *found;
    return invalid_argument("shm: slot ", publication.slot.index, " was not offered");
  }

  void end_read(SlotId) override {}  // a slot stays mapped for later versions
  void unmap(SlotId slot) override { slots_.erase(slot); }

 private:
  struct Slot {
    Mapping mapping;
    std::shared_ptr<const SlotHandle> handle;
  };
  std::map<SlotId, Slot> slots_;
};

}  // namespace

Scheme shm_scheme() {
  return {.name = "shm",
          .needs_descriptors = true,
          .maps_once = true,
          .keeps_files = false,
          .hands_on = true,
          .many_writers = true,
          .make_sender = [](const Endpoint&, Epoch) { return std::make_unique<ShmSender>(); },
          .make_receiver = [](const Endpoint&) { return std::make_unique<ShmReceiver>(); }};
}

}  // namespace bascule::inline v0
