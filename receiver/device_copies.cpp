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
    BASCULE_TRY(source(*place).status());
  }
  while (!sources_.empty() && buffers_.size() < kept_) BASCULE_TRY(add(bytes).status());
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
  const auto known = sources_.find(publication.slot);
  if (known == sources_.end()) return;
  const absl::StatusOr<std::uint64_t> piece = known->second.reach(*queue_);
  if (!piece.ok()) return;
  const std::uint64_t end = bytes_done < publication.bytes ? bytes_done / *piece * *piece : publication.bytes;
  if (end == 0) return;
  const absl::StatusOr<Buffer*> to = in_flight(publication);
  // An error here also occurs in prepare(), which can report it.
  if (to.ok()) copy(**to, known->second, end, publication.bytes).IgnoreError();
}

absl::StatusOr<SlotView> DeviceCopies::prepare(const Publication& publication, Deadline deadline) {
  if (lies_here(publication.slot)) return slots_->prepare(publication, deadline);
  Buffer* whole = find(publication);
  if (whole == nullptr || !whole->in_use) {  // else the worker is sent a version that it already has
    BASCULE_ASSIGN(const SlotView from, slots_->prepare(publication, deadline));
    if (from.slot.index >= kOwnMemory) return from;
    const auto bring = [&]() -> absl::Status {
      const SlotView whole_slot{.slot = from.slot, .bytes = from.bytes.first(publication.bytes), .device = from.device};
      BASCULE_ASSIGN(SourceMemory* const seen, source(whole_slot));
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
  Buffer* const read = find_buffer(slot);
  if (read == nullptr) return slots_->end_read(slot);
  *read = Buffer{.index = read->index, .memory = std::move(read->memory), .bytes = read->bytes};
  if (buffers_.size() > kept_) std::erase_if(buffers_, [read](const Buffer& each) { return &each == read; });
}

absl::StatusOr<Digest> DeviceCopies::read_again(const Publication& publication, SlotId view,
                                                std::span<const ByteRange> ranges, Deadline deadline) {
  Buffer* const to = find_buffer(view);
  if (to == nullptr) {
    ReadsAgain* const scheme = slots_->reads_again();
    if (scheme == nullptr) return unimplemented("the version came from no source that is still there");
    return scheme->read_again(publication, view, ranges, deadline);
  }
  incoming_ = nullptr;  // a copy that is under way starts over
  BASCULE_ASSIGN(SlotView from, slots_->prepare(publication, deadline));
  from.bytes = from.bytes.first(publication.bytes);
  absl::StatusOr<Digest> digest = mend(*to, from, ranges, deadline);
  slots_->end_read(from.slot);
  if (digest.ok()) to->digest = *digest;
  return digest;
}

absl::StatusOr<Digest> DeviceCopies::mend(Buffer& to, const SlotView& from, std::span<const ByteRange> ranges,
                                          Deadline deadline) {
  BASCULE_ASSIGN(SourceMemory* const slot, source(from));
  const std::span<std::byte> bytes(to.memory.get(), from.bytes.size());
  for (const ByteRange& range : ranges)
    BASCULE_TRY(slot->read(range, {.memory = bytes, .queue = *queue_, .digesting = false}));
  BASCULE_TRY(queue_->digest(bytes, true, std::nullopt));
  BASCULE_ASSIGN(const std::optional<Digest> digest, queue_->finish(deadline));
  return *digest;
}

void DeviceCopies::unmap(SlotId slot) {
  sources_.erase(slot);
  slots_->unmap(slot);
}

// A slot is registered once: when it is offered or, if no sender offers it, when it is first read.
absl::StatusOr<SourceMemory*> DeviceCopies::source(const SlotView& place) {
  BASCULE_TRY(open_queue());
  auto known = sources_.find(place.slot);
  if (known != sources_.end() && known->second.bytes().data() != place.bytes.data()) {  // its mapping is gone
    sources_.erase(known);
    known = sources_.end();
  }
  if (known == sources_.end())
    known = sources_.try_emplace(place.slot, ReachedMemory{.bytes = place.bytes, .device = place.device}).first;
  const absl::StatusOr<std::uint64_t> reached = known->second.reach(*queue_);
  if (!reached.ok()) {
    sources_.erase(known);
    return reached.status();
  }
  return &known->second;
}

absl::Status DeviceCopies::open_queue() {
  if (queue_) return absl::OkStatus();
  BASCULE_ASSIGN(queue_, open_device(device_));
  return absl::OkStatus();
}

absl::StatusOr<DeviceCopies::Buffer*> DeviceCopies::add(std::uint64_t bytes) {
  BASCULE_TRY(open_queue());
  BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, queue_->allocate(bytes, "a receive buffer"));
  return &buffers_.emplace_back(Buffer{.index = next_++, .memory = std::move(memory), .bytes = bytes});
}

DeviceCopies::Buffer* DeviceCopies::find(const Publication& publication) {
  const auto found = std::ranges::find_if(
      buffers_, [&](const Buffer& each) { return each.version == publication.version && each.of == publication.slot; });
  return found == buffers_.end() ? nullptr : &*found;
}

DeviceCopies::Buffer* DeviceCopies::find_buffer(SlotId view) {
  const auto found = std::ranges::find(buffers_, view.index, &Buffer::index);
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
absl::Status DeviceCopies::copy(Buffer& to, SourceMemory& from, std::uint64_t end, std::uint64_t of_bytes) {
  if (to.bytes_done >= end) return absl::OkStatus();
  absl::Status copied =
      from.read({to.bytes_done, end}, {.memory = {to.memory.get(), of_bytes}, .queue = *queue_, .digesting = true});
  if (!copied.ok()) incoming_ = nullptr;
  to.bytes_done = end;
  return copied;
}

}  // namespace bascule::inline v0
