#include <bascule/receiver/device_copies.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/kept_slots.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status DeviceCopies::accept(ReceivedOffer offer) {
  const std::vector<SlotId> slots = offer.slots;
  const std::uint64_t bytes = offer.slot_bytes;
  BASCULE_TRY(slots_->accept(std::move(offer)));
  for (const SlotId slot : slots) {
    std::optional<SlotView> place = slots_->find(slot);
    if (!place || lies_here(slot)) continue;
    place->bytes = place->bytes.first(bytes);
    BASCULE_TRY(window(*place).status());
  }
  while (!windows_.empty() && buffers_.size() < kept_) BASCULE_TRY(add(bytes).status());
  return absl::OkStatus();
}

std::optional<SlotView> DeviceCopies::find(SlotId slot) const {
  if (slot.index < kOwnMemory) return slots_->find(slot);
  const auto buffer = std::ranges::find(buffers_, slot.index, &Buffer::index);
  if (buffer == buffers_.end()) return slots_->find(slot);
  return SlotView{
      .slot = slot, .bytes = {buffer->memory.get(), buffer->bytes}, .device = device_, .memory = buffer->memory};
}

bool DeviceCopies::lies_here(SlotId slot) const {
  const std::optional<SlotView> place = slots_->find(slot);
  return place && place->device == device_;
}

void DeviceCopies::copy_behind(const Publication& publication, std::uint64_t bytes_done) {
  const auto known = windows_.find(publication.slot);
  if (known == windows_.end()) return;
  const std::uint64_t piece = known->second.window->piece_bytes();
  const std::uint64_t end = bytes_done < publication.bytes ? bytes_done / piece * piece : publication.bytes;
  if (end == 0) return;
  const absl::StatusOr<Buffer*> to = in_flight(publication);
  // An error here also occurs in prepare(), which can report it.
  if (to.ok()) copy(**to, *known->second.window, end, publication.bytes).IgnoreError();
}

absl::StatusOr<SlotView> DeviceCopies::prepare(const Publication& publication, Deadline deadline) {
  if (lies_here(publication.slot)) return slots_->prepare(publication, deadline);
  Buffer* whole = find(publication);
  if (whole == nullptr || !whole->in_use) {  // else the worker is sent a version that it already has
    BASCULE_ASSIGN(const SlotView from, slots_->prepare(publication, deadline));
    if (from.slot.index >= kOwnMemory) return from;
    const auto bring = [&]() -> absl::Status {
      const SlotView whole_slot{.slot = from.slot, .bytes = from.bytes.first(publication.bytes), .device = from.device};
      BASCULE_ASSIGN(HostWindow* const seen, window(whole_slot));
      BASCULE_ASSIGN(whole, in_flight(publication));
      BASCULE_TRY(copy(*whole, *seen, publication.bytes, publication.bytes));
      BASCULE_ASSIGN(whole->digest, queue_->finish(deadline));
      return absl::OkStatus();
    };
    const absl::Status brought = bring();
    slots_->end_read(from.slot);
    if (!brought.ok()) return annotate(brought, cat("copy slot ", publication.slot.index, " to device ", device_));
    whole->in_use = true;
    incoming_ = nullptr;
  }
  return SlotView{.slot = {publication.slot.epoch, whole->index},
                  .bytes = {whole->memory.get(), publication.bytes},
                  .device = device_,
                  .digest = whole->digest,
                  .memory = whole->memory};
}

void DeviceCopies::end_read(SlotId slot) {
  if (slot.index < kOwnMemory) return slots_->end_read(slot);  // the version was found, but not prepared
  const auto read = std::ranges::find(buffers_, slot.index, &Buffer::index);
  if (read == buffers_.end()) return slots_->end_read(slot);
  *read = Buffer{.index = read->index, .memory = std::move(read->memory), .bytes = read->bytes};
  if (buffers_.size() > kept_) buffers_.erase(read);
}

void DeviceCopies::unmap(SlotId slot) {
  windows_.erase(slot);
  slots_->unmap(slot);
}

// A slot is registered once: when it is offered or, if no sender offers it, when it is first read.
absl::StatusOr<HostWindow*> DeviceCopies::window(const SlotView& place) {
  Window& known = windows_[place.slot];
  if (known.of == place.bytes.data() && known.window) return known.window.get();
  known = {};  // its mapping is gone
  absl::StatusOr<std::shared_ptr<HostWindow>> opened = open(place);
  if (!opened.ok()) {
    windows_.erase(place.slot);
    return opened.status();
  }
  known = {.of = place.bytes.data(), .window = *std::move(opened)};
  return known.window.get();
}

absl::StatusOr<std::shared_ptr<HostWindow>> DeviceCopies::open(const SlotView& place) {
  if (!queue_) {
    BASCULE_ASSIGN(queue_, open_device(device_));
  }
  return queue_->open_window(place.bytes, place.device, Access::kReadOnly);
}

absl::StatusOr<DeviceCopies::Buffer*> DeviceCopies::add(std::uint64_t bytes) {
  if (!queue_) {
    BASCULE_ASSIGN(queue_, open_device(device_));
  }
  BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, queue_->allocate(bytes, "a receive buffer"));
  return &buffers_.emplace_back(Buffer{.index = next_++, .memory = std::move(memory), .bytes = bytes});
}

DeviceCopies::Buffer* DeviceCopies::find(const Publication& publication) {
  const auto found = std::ranges::find_if(
      buffers_, [&](const Buffer& each) { return each.version == publication.version && each.of == publication.slot; });
  return found == buffers_.end() ? nullptr : &*found;
}

// Returns the buffer for the version: the one to which its copy has begun, or one that is not read. A version that was
// in flight to it is given up; the device copies in order.
absl::StatusOr<DeviceCopies::Buffer*> DeviceCopies::in_flight(const Publication& publication) {
  Buffer* to = find(publication);
  if (to != nullptr && (to->in_use || to == incoming_)) return to;
  const auto free = std::ranges::find_if(
      buffers_, [&](const Buffer& each) { return !each.in_use && each.bytes >= publication.bytes; });
  if (to == nullptr && free != buffers_.end()) to = &*free;
  if (to == nullptr) {
    BASCULE_ASSIGN(to, add(publication.bytes));
  }
  to->of = publication.slot;
  to->version = publication.version;
  to->bytes_done = 0;
  return incoming_ = to;
}

// Copies all that is written at once: one copy per packed piece takes longer, since time passes between copies. After a
// failure, part of a version may have been copied and digested; it then starts over.
absl::Status DeviceCopies::copy(Buffer& to, HostWindow& from, std::uint64_t end, std::uint64_t of_bytes) {
  if (to.bytes_done >= end) return absl::OkStatus();
  absl::Status copied = queue_->copy_in(from, to.bytes_done, end, {to.memory.get(), of_bytes}, /*digesting=*/true);
  if (!copied.ok()) incoming_ = nullptr;
  to.bytes_done = end;
  return copied;
}

}  // namespace bascule::inline v0
