#include <bascule/schemes/relay/source.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

absl::StatusOr<HostWindow*> SourceMemory::window(DeviceQueue& queue) {
  if (!window_) {
    BASCULE_ASSIGN(window_, queue.open_window(memory_.bytes, memory_.device, Access::kReadOnly));
  }
  return window_.get();
}

// ---- the trainer ----

void TrainerSlots::add(SlotId slot, ReachedMemory memory, WrittenSoFar written) {
  const std::lock_guard lock(mutex_);
  slots_.try_emplace(slot, std::make_shared<SourceMemory>(std::move(memory)));
  written_ = std::move(written);
}

void TrainerSlots::remove(SlotId slot) {
  const std::lock_guard lock(mutex_);
  slots_.erase(slot);
}

absl::StatusOr<std::optional<Source::Found>> TrainerSlots::find(const Publication& publication) {
  const std::lock_guard lock(mutex_);
  const auto slot = slots_.find(publication.slot);
  if (slot == slots_.end()) return invalid_argument("slot ", publication.slot.index, " was not offered");
  return Found{.memory = slot->second, .bytes_done = std::min(written_(publication.slot), publication.bytes)};
}

// ---- an engine ----

std::shared_ptr<EngineBuffers> EngineBuffers::make(const RelayMemory& here, const RelayMessage& message,
                                                   std::vector<UniqueFd> descriptors) {
  auto made = std::make_shared<EngineBuffers>();
  made->imported_ = annotate(made->import(here, message, std::move(descriptors)),
                             cat("the receive buffers of engine ", message.source));
  return made;
}

absl::Status EngineBuffers::import(const RelayMemory& here, const RelayMessage& message,
                                   std::vector<UniqueFd> descriptors) {
  if (descriptors.size() < 2 || descriptors.size() > kMostBuffers + 1)
    return invalid_argument("expected a progress page and 1 to ", kMostBuffers, " receive buffers, found ",
                            descriptors.size(), " descriptors");
  BASCULE_ASSIGN(progress_, ProgressView::map(descriptors.front().get()));
  for (std::size_t i = 1; i < descriptors.size(); ++i) {
    BASCULE_ASSIGN(ReachedMemory memory, here.import(descriptors[i].get(), message.place, message.allocated));
    buffers_.push_back(std::make_shared<SourceMemory>(std::move(memory)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Source::Found>> EngineBuffers::find(const Publication& publication) {
  BASCULE_TRY(imported_);
  const std::optional<ProgressView::Progress> progress = progress_->find(publication.version);
  if (!progress) return std::nullopt;
  if (progress->buffer >= buffers_.size() || buffers_[progress->buffer]->bytes() < publication.bytes)
    return invalid_argument("its progress page names buffer ", progress->buffer, ", which is not there, or too small");
  return Found{.memory = buffers_[progress->buffer], .bytes_done = std::min(progress->bytes_done, publication.bytes)};
}

}  // namespace bascule::inline v0::relay
