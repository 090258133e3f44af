#include <bascule/schemes/auto/receiver.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include <bascule/schemes/auto/sender.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// The offer's descriptors are for memory on a device, which this worker does not read.
absl::Status MirrorReader::accept(ReceivedOffer offer) {
  const std::lock_guard lock(mutex_);
  slot_bytes_ = offer.slot_bytes;
  for (const SlotId slot : offer.slots)
    if (std::ranges::find(slots_, slot) == slots_.end()) slots_.push_back(slot);
  return absl::OkStatus();
}

absl::StatusOr<SlotView> MirrorReader::prepare(const Publication& publication, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto known = [&] { return mirrors_.contains(publication.slot) || shown_.contains(publication.slot) || !open_; };
  if (!changed_.wait_until(lock, deadline.at(), known))
    return deadline_exceeded("auto: the mirror of slot ", publication.slot.index, " was not shown in time");
  if (auto shown = shown_.extract(publication.slot); shown && !mirrors_.contains(publication.slot)) {
    const std::uint64_t bytes = slot_bytes_;
    lock.unlock();  // mapping makes every page present
    const auto map = [&]() -> absl::StatusOr<Mapping> {
      BASCULE_TRY(check_sealed(shown.mapped().get(), bytes));
      return Mapping::map(shown.mapped().get(), bytes, Access::kReadOnly);
    };
    absl::StatusOr<Mapping> mapping = map();
    lock.lock();
    if (!mapping.ok()) {
      if (open_) shown_.insert(std::move(shown));  // the sender shows it once; the next version tries again
      return annotate(mapping.status(), cat("auto: the mirror of slot ", publication.slot.index));
    }
    mirrors_.insert_or_assign(publication.slot, *std::move(mapping));
    shown_.erase(publication.slot);  // shown again while it was being mapped
  }
  const auto mirror = mirrors_.find(publication.slot);
  if (mirror == mirrors_.end())
    return unavailable("auto: the mirror of slot ", publication.slot.index, " is shown to workers that have a ",
                       "connection to the sender, and there is none; join as a worker");
  return SlotView{.slot = publication.slot, .bytes = mirror->second.bytes(), .memory = mirror->second.keep()};
}

std::optional<SlotView> MirrorReader::find(SlotId slot) const {
  const std::lock_guard lock(mutex_);
  const auto mirror = mirrors_.find(slot);
  if (mirror == mirrors_.end()) return std::nullopt;
  return SlotView{.slot = slot, .bytes = mirror->second.bytes(), .memory = mirror->second.keep()};
}

void MirrorReader::unmap(SlotId slot) {
  const std::lock_guard lock(mutex_);
  mirrors_.erase(slot);
  shown_.erase(slot);
  std::erase(slots_, slot);
}

void MirrorReader::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  open_ = true;
  line->say(kWantsMirrors);
}

// A mapped mirror keeps its address: a slot has one mirror per epoch.
void MirrorReader::heard(std::string bytes, std::vector<UniqueFd> descriptors) {
  std::uint32_t index = 0;
  const std::string_view shows = kShowsMirror;
  if (!bytes.starts_with(shows) || !absl::SimpleAtoi(bytes.substr(shows.size()), &index) || descriptors.size() != 1)
    return;
  const std::lock_guard lock(mutex_);
  const auto slot = std::ranges::find(slots_, index, &SlotId::index);
  if (slot == slots_.end() || mirrors_.contains(*slot)) return;
  shown_.insert_or_assign(*slot, std::move(descriptors.front()));
  changed_.notify_all();
}

absl::Status MirrorReader::receive(const Publication&, std::string, Deadline) {
  return failed_precondition("auto: a worker that reads on the host takes part in no delivery");
}

void MirrorReader::close() {
  const std::lock_guard lock(mutex_);
  open_ = false;
  shown_.clear();
  changed_.notify_all();
}

}  // namespace bascule::inline v0
