#include <bascule/schemes/relay/shown_buffers.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

bool contains(std::span<const Version> versions, Version version) {
  return std::ranges::find(versions, version) != versions.end();
}

}  // namespace

absl::Status ShownBuffers::open(const RelayMemory& memory, std::uint64_t bytes) {
  BASCULE_ASSIGN(progress_, ProgressPage::make());
  message_.place = memory.place;
  const auto allocate = [&memory](std::uint64_t wanted,
                                  std::string_view what) -> absl::StatusOr<std::shared_ptr<std::byte>> {
    absl::StatusOr<ShownMemory> buffer = memory.make_buffer(wanted);
    if (!buffer.ok()) return annotate(buffer.status(), cat("memory for ", what));
    return std::move(buffer->memory);
  };
  return buffers_.open(allocate, memory.device, bytes, 0);
}

void ShownBuffers::show(ShownMemory made) {
  message_.allocated = made.allocated;
  shown_.push_back(std::move(made.descriptor));
  buffers_.keep(std::move(made.memory), std::move(made.read_only));
}

void ShownBuffers::hide() {
  for (std::size_t place = 0; place < shown_.size(); ++place) progress_->clear(place);
  shown_.clear();
  buffers_.keep_none();
}

RelayMessage ShownBuffers::message() {
  message_.version = buffers_.newest_kept();
  return message_;
}

std::vector<ProcessFd> ShownBuffers::descriptors() const {
  std::vector<ProcessFd> copies;
  copies.push_back(ProcessFd::copy_of(progress_->descriptor()));
  for (const ProcessFd& buffer : shown_) copies.push_back(ProcessFd::copy_of(buffer.get()));
  // The page numbers the buffers, so without one of them the others would be taken for the wrong ones.
  if (!std::ranges::all_of(copies, [](const ProcessFd& copy) { return static_cast<bool>(copy); })) copies.clear();
  return copies;
}

// Takes its version off the page first, so that no lease begins later.
bool ShownBuffers::is_leased(const Buffer& buffer) {
  if (!buffer.place) return false;
  progress_->clear(*buffer.place);
  return progress_->is_leased(*buffer.place);
}

absl::StatusOr<ShownBuffers::Buffer*> ShownBuffers::begin(Version version, std::span<const Version> spared) {
  BASCULE_ASSIGN(Buffer* const buffer, buffers_.begin(version, [&](const Buffer& each) {
    return !contains(spared, each.version) && !is_leased(each);
  }));
  if (buffer->place) progress_->begin(*buffer->place, version);
  return buffer;
}

std::vector<Version> ShownBuffers::leased(std::span<const Version> spared) {
  std::vector<Version> versions;
  const Buffer* const free = buffers_.find_free([&](const Buffer& each) {
    if (contains(spared, each.version)) return false;
    if (!is_leased(each)) return true;
    versions.push_back(each.version);
    return false;
  });
  return free == nullptr ? versions : std::vector<Version>();
}

bool ShownBuffers::waits_for_leases(std::span<const Version> spared) {
  const std::vector<Version> versions = leased(spared);
  return std::ranges::any_of(versions, [this](Version each) { return !contains(stuck_, each); });
}

void ShownBuffers::stuck(std::span<const Version> spared) { stuck_ = leased(spared); }

void ShownBuffers::advance(const Buffer& buffer, std::uint64_t bytes_done) {
  if (buffer.place) progress_->advance(*buffer.place, bytes_done);
}

void ShownBuffers::show_digest(const Buffer& buffer, const std::optional<Digest>& digest) {
  if (buffer.place) progress_->show_digest(*buffer.place, digest);
}

void ShownBuffers::give_up(Buffer& buffer, bool still_written) {
  if (buffer.place) progress_->clear(*buffer.place);
  buffers_.give_up(buffer, still_written);
}

}  // namespace bascule::inline v0::relay
