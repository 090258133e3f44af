#include <bascule/transport/source.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<std::uint64_t> SourceMemory::reach(DeviceQueue& queue) {
  if (!window_) {
    BASCULE_ASSIGN(window_, queue.open_window(memory_.bytes, memory_.device, Access::kReadOnly));
  }
  return window_->piece_bytes();
}

absl::Status SourceMemory::read(const ByteRange& range, const Landing& into) {
  BASCULE_TRY(reach(into.queue).status());
  return into.queue.copy_in(*window_, range.begin, range.end, into.memory, into.digesting);
}

void SlotSource::add(SlotId slot, ReachedMemory memory, WrittenSoFar written) {
  const std::lock_guard lock(mutex_);
  slots_.try_emplace(slot, std::make_shared<SourceMemory>(std::move(memory)));
  written_ = std::move(written);
}

void SlotSource::remove(SlotId slot) {
  const std::lock_guard lock(mutex_);
  slots_.erase(slot);
}

absl::StatusOr<std::shared_ptr<SourceMemory>> SlotSource::find(SlotId slot) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return invalid_argument("slot ", slot.index, " was not offered");
  return found->second;
}

absl::StatusOr<std::optional<std::uint64_t>> SlotSource::available(const Publication& publication) {
  const std::lock_guard lock(mutex_);
  BASCULE_TRY(find(publication.slot).status());
  return std::min(written_(publication.slot), publication.bytes);
}

absl::Status SlotSource::read(const Publication& publication, const ByteRange& range, const Landing& into) {
  std::shared_ptr<SourceMemory> memory;
  {
    const std::lock_guard lock(mutex_);
    BASCULE_ASSIGN(memory, find(publication.slot));
  }
  return memory->read(range, into);
}

}  // namespace bascule::inline v0
