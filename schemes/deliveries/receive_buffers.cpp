#include <bascule/schemes/deliveries/receive_buffers.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::string_view kWhat = "a receive buffer for the weights";

}  // namespace

absl::Status ReceiveBuffers::open(Allocate allocate, int device, std::uint64_t bytes, std::size_t kept) {
  allocate_ = std::move(allocate);
  device_ = device;
  bytes_ = bytes;
  while (kept_ < kept) {
    BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, allocate_(bytes_, kWhat));
    keep(std::move(memory));
  }
  return absl::OkStatus();
}

void ReceiveBuffers::keep(std::shared_ptr<std::byte> memory, std::shared_ptr<const std::byte> read_only) {
  Buffer* const buffer = add(std::move(memory), next_++);
  buffer->place = kept_++;
  buffer->read_only = std::move(read_only);
}

ReceiveBuffers::Buffer* ReceiveBuffers::add(std::shared_ptr<std::byte> memory, std::uint32_t number) {
  buffers_.push_back(std::make_unique<Buffer>(Buffer{.number = number,
                                                     .state = Buffer::State::kFree,
                                                     .memory = std::move(memory),
                                                     .version = 0,
                                                     .digest = std::nullopt}));
  return buffers_.back().get();
}

void ReceiveBuffers::drop(Buffer& buffer) {
  std::erase_if(buffers_, [&](const auto& each) { return each.get() == &buffer; });
}

void ReceiveBuffers::free_untaken() {
  std::erase_if(buffers_, [](const auto& each) { return each->state == Buffer::State::kWhole && each->lease; });
  for (const auto& each : buffers_)
    if (each->state == Buffer::State::kWhole) each->state = Buffer::State::kFree;
}

ReceiveBuffers::Buffer* ReceiveBuffers::find_free(const Usable& usable) {
  const auto found = std::ranges::find_if(buffers_, [&](const auto& each) {
    return each->state == Buffer::State::kFree && (usable == nullptr || usable(*each));
  });
  return found == buffers_.end() ? nullptr : found->get();
}

absl::StatusOr<ReceiveBuffers::Buffer*> ReceiveBuffers::begin(Version version, const Usable& usable) {
  free_untaken();
  Buffer* buffer = find_free(usable);
  if (buffer == nullptr) {
    BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, allocate_(bytes_, kWhat));
    buffer = add(std::move(memory), next_++);
  }
  buffer->state = Buffer::State::kIncoming;
  buffer->version = version;
  buffer->digest.reset();
  return buffer;
}

ReceiveBuffers::Buffer* ReceiveBuffers::borrow(Version version, std::shared_ptr<std::byte> memory,
                                               std::shared_ptr<const void> lease) {
  std::erase_if(borrowed_, [](const Borrowed& each) { return each.memory.expired(); });
  auto known = std::ranges::find_if(borrowed_, [&](const Borrowed& each) { return each.memory.lock() == memory; });
  if (known == borrowed_.end()) known = borrowed_.insert(known, {.number = next_++, .memory = memory});
  Buffer* const buffer = add(std::move(memory), known->number);
  buffer->state = Buffer::State::kIncoming;
  buffer->version = version;
  buffer->lease = std::move(lease);
  return buffer;
}

void ReceiveBuffers::came(Buffer& buffer, std::optional<Digest> digest) {
  buffer.state = Buffer::State::kWhole;
  buffer.digest = digest;
}

void ReceiveBuffers::give_up(Buffer& buffer, bool still_written) {
  if (still_written || buffer.lease) return drop(buffer);
  buffer.state = Buffer::State::kFree;
}

ReceiveBuffers::Buffer* ReceiveBuffers::whole(Version version) {
  const auto found = std::ranges::find_if(buffers_, [version](const auto& buffer) {
    return buffer->state == Buffer::State::kWhole && buffer->version == version;
  });
  return found == buffers_.end() ? nullptr : found->get();
}

SlotView ReceiveBuffers::view_of(SlotId slot, const std::shared_ptr<const std::byte>& memory) const {
  return {.slot = slot, .bytes = {memory.get(), bytes_}, .device = device_, .memory = memory};
}

SlotView ReceiveBuffers::take(Buffer& buffer, Epoch epoch) {
  buffer.state = Buffer::State::kRead;
  SlotView view = view_of({epoch, buffer.number}, buffer.read_only ? buffer.read_only : buffer.memory);
  view.digest = buffer.digest;
  return view;
}

std::optional<SlotView> ReceiveBuffers::find(SlotId slot) const {
  for (const auto& each : buffers_)
    if (each->number == slot.index) return view_of(slot, each->read_only ? each->read_only : each->memory);
  for (const Borrowed& each : borrowed_)
    if (const std::shared_ptr<std::byte> memory = each.memory.lock(); memory && each.number == slot.index)
      return view_of(slot, memory);
  return std::nullopt;
}

Version ReceiveBuffers::newest_kept() const {
  Version newest = 0;
  for (const auto& each : buffers_)
    if (each->place && (each->state == Buffer::State::kWhole || each->state == Buffer::State::kRead))
      newest = std::max(newest, each->version);
  return newest;
}

void ReceiveBuffers::keep_none() {
  kept_ = 0;
  for (const auto& each : buffers_) each->place.reset();
  std::erase_if(buffers_, [](const auto& each) { return each->state == Buffer::State::kFree; });
}

ReceiveBuffers::Buffer* ReceiveBuffers::read(std::uint32_t number) {
  const auto found = std::ranges::find_if(
      buffers_, [&](const auto& each) { return each->number == number && each->state == Buffer::State::kRead; });
  return found == buffers_.end() ? nullptr : found->get();
}

// If a version was borrowed and taken twice, no lease on its memory may stay.
void ReceiveBuffers::end_read(std::uint32_t number) {
  while (Buffer* const buffer = read(number)) {
    buffer->state = Buffer::State::kFree;
    if (buffer->lease || (buffers_.size() > kept_ && !buffer->place)) drop(*buffer);
  }
}

}  // namespace bascule::inline v0
