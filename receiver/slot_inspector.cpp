#include <bascule/receiver/slot_inspector.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

void has_changed(ObservedSlot& slot) {
  slot.check = SlotCheck::kChanged;
  slot.found.reset();
  slot.why.clear();
}

// Whether the sender's report on a slot agrees with `version` on the control page (0: it is not whole). A free slot
// holds an older version, or one that was aborted.
bool fits(const SlotStatus& says, Version version) {
  if (says.state == "writing") return version == 0;
  if (says.state == "sealed" || says.state == "published") return version == says.version;
  return true;
}

// Reads one slot, once.
void check_slot(ObservedSlot& slot, SlotId id, std::uint64_t bytes, const ControlPageView& page,
                ReceiverTransport& transport, SlotReader& reader, absl::Duration timeout) {
  const SlotRecord before = page.read(id.index);
  slot.says.version = before.version;
  slot.says.digest = before.digest;
  slot.check = before.version == 0 || before.bytes_done < bytes ? SlotCheck::kNotWhole : SlotCheck::kNoDigest;
  if (slot.check == SlotCheck::kNotWhole || !before.digest) return;
  const Publication publication{.version = before.version, .slot = id, .bytes = bytes, .digest = before.digest};
  const absl::StatusOr<SlotView> view = transport.prepare(publication, Deadline(timeout));
  if (view.ok() && view->bytes.size() >= bytes) {
    check_bytes(slot, reader, *view, bytes, timeout);
    transport.end_read(view->slot);
  } else {
    slot.check = SlotCheck::kUnreached;
    slot.why = view.ok() ? "it is shorter than its layout" : std::string(message_of(view.status()));
  }
  if (slot.check != SlotCheck::kVerified && page.read(id.index).version != before.version) has_changed(slot);
}

// Returns the earlier result for that slot; null if there is none that is still valid. If a version's bytes differed,
// that is reported in any case, whatever the slot holds now.
const ObservedSlot* known_of(const std::vector<ObservedSlot>& known, const SlotStatus& says, const SlotRecord& now) {
  const auto found =
      std::ranges::find_if(known, [&](const ObservedSlot& slot) { return slot.says.index == says.index; });
  if (found == known.end() || found->check == SlotCheck::kChanged) return nullptr;
  const bool holds = found->says.version == now.version && fits(says, now.version);
  return holds || found->check == SlotCheck::kDiffers ? &*found : nullptr;
}

}  // namespace

void check_bytes(ObservedSlot& slot, SlotReader& reader, const SlotView& view, std::uint64_t bytes,
                 absl::Duration timeout) {
  const absl::StatusOr<Digest> found =
      reader.digest({.slot = view.slot, .bytes = view.bytes.first(bytes), .device = view.device}, Deadline(timeout));
  if (!found.ok()) {
    slot.check = SlotCheck::kUnreached;
    slot.why = std::string(message_of(found.status()));
    return;
  }
  slot.check = *found == *slot.says.digest ? SlotCheck::kVerified : SlotCheck::kDiffers;
  if (slot.check == SlotCheck::kDiffers) slot.found = *found;
}

absl::StatusOr<bool> SlotInspector::look(Answer answer) { return look(std::move(answer), /*reads=*/true); }

absl::Status SlotInspector::conclude(Answer answer) { return look(std::move(answer), /*reads=*/false).status(); }

absl::StatusOr<bool> SlotInspector::look(Answer answer, bool reads) {
  const Epoch before = std::exchange(seen_.status, std::move(answer.status)).epoch;
  const SenderStatus& status = seen_.status;
  std::vector<ObservedSlot> known = std::exchange(seen_.slots, {});
  if (before != status.epoch) known.clear();  // another sender
  for (const SlotStatus& slot : status.slots) seen_.slots.push_back({.says = slot});
  if (!status.offer || !status.layout || answer.descriptors.empty()) return true;

  BASCULE_ASSIGN(const ControlPageView page, ControlPageView::map(std::move(answer.descriptors.back()), status.epoch));
  answer.descriptors.pop_back();
  const std::uint64_t bytes = status.layout->bytes();
  std::vector<ObservedSlot*> open;  // without a valid result
  for (ObservedSlot& slot : seen_.slots) {
    if (std::ranges::find(status.offered, slot.says.index) == status.offered.end()) continue;
    if (const ObservedSlot* const held = known_of(known, slot.says, page.read(slot.says.index))) {
      slot.check = held->check;
      slot.why = held->why;
      slot.found = held->found;
      slot.says.version = held->says.version;
      slot.says.digest = held->says.digest;
    } else {
      open.push_back(&slot);
    }
  }
  if (!reads) std::ranges::for_each(open, [](ObservedSlot* slot) { has_changed(*slot); });
  if (!reads || open.empty()) return open.empty();

  ReceivedOffer offer{
      .bytes = *status.offer, .descriptors = std::move(answer.descriptors), .slots = {}, .slot_bytes = bytes};
  for (const std::uint32_t index : status.offered) offer.slots.push_back({status.epoch, index});
  const std::unique_ptr<ReceiverTransport> transport = scheme_.make_receiver(endpoint_);
  BASCULE_TRY(annotate(transport->accept(std::move(offer)), "reach the sender's memory"));
  for (ObservedSlot* const slot : open)
    check_slot(*slot, {status.epoch, slot->says.index}, bytes, page, *transport, reader_, endpoint_.timeout);
  return false;
}

Observation SlotInspector::seen() && { return std::move(seen_); }

}  // namespace bascule::inline v0
