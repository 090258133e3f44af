#include <bascule/schemes/relay/engine_buffers.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

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
    buffers_.emplace_back(std::move(memory));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::uint64_t>> EngineBuffers::available(const Publication& publication) {
  BASCULE_TRY(imported_);
  const std::optional<ProgressView::Progress> progress = progress_->find(publication.version);
  if (!progress) return std::nullopt;
  if (progress->buffer >= buffers_.size() || buffers_[progress->buffer].bytes().size() < publication.bytes)
    return invalid_argument("its progress page names buffer ", progress->buffer, ", which is not there, or too small");
  found_ = *progress;
  return std::min(progress->bytes_done, publication.bytes);
}

absl::Status EngineBuffers::read(const Publication&, const ByteRange& range, const Landing& into) {
  return buffers_.at(found_.buffer).read(range, into);
}

absl::StatusOr<std::optional<EngineBuffers::Shared>> EngineBuffers::share(const Publication& publication) {
  BASCULE_ASSIGN(ProcessFd lease, progress_->lease(found_.buffer));
  const std::optional<ProgressView::Progress> progress = progress_->find(publication.version);
  if (!progress || progress->buffer != found_.buffer) return std::nullopt;
  const ReachedMemory& memory = buffers_.at(found_.buffer).reached();
  return Shared{.memory = {memory.owner, const_cast<std::byte*>(memory.bytes.data())}, .lease = std::move(lease)};
}

std::optional<Digest> EngineBuffers::await_digest(const Publication& publication, Deadline deadline) const {
  // An engine has digested its copy soon after the last byte has come, unless it stands still.
  for (const Deadline soon(absl::Milliseconds(50)); !soon.passed() && !deadline.passed();) {
    const std::optional<ProgressView::Progress> progress = progress_->find(publication.version);
    if (!progress || progress->buffer != found_.buffer || progress->digested == Digested::kNever) return std::nullopt;
    if (progress->digested == Digested::kYes) return progress->digest;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return std::nullopt;
}

}  // namespace bascule::inline v0::relay
