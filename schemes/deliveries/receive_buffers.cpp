#include <bascule/schemes/deliveries/receive_buffers.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status ReceiveBuffers::open(Allocate allocate, int device, std::uint64_t bytes, std::size_t kept) {
  allocate_ = std::move(allocate);
  device_ = device;
  bytes_ = bytes;
  kept_ = kept;
  while (buffers_.size() < kept_) BASCULE_TRY(add().status());
  return absl::OkStatus();
}

absl::StatusOr<ReceiveBuffers::Buffer*> ReceiveBuffers::add() {
  BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, allocate_(bytes_, "a receive buffer for the weights"));
  buffers_.push_back(std::make_unique<Buffer>(Buffer{.number = next_++,
                                                     .state = Buffer::State::kFree,
                                                     .memory = std::move(memory),
                                                     .version = 0,
                                                     .digest = std::nullopt}));
  return buffers_.back().get();
}

void ReceiveBuffers::drop(Buffer& buffer) {
  std::erase_if(buffers_, [&](const auto& each) { return each.get() == &buffer; });
}

absl::StatusOr<ReceiveBuffers::Buffer*> ReceiveBuffers::begin(Version version, std::span<const Version> spared) {
  for (const auto& each : buffers_)
    if (each->state == Buffer::State::kWhole) each->state = Buffer::State::kFree;
  const auto found = std::ranges::find_if(buffers_, [&](const auto& each) {
    return each->state == Buffer::State::kFree && std::ranges::find(spared, each->version) == spared.end();
  });
  Buffer* buffer = found == buffers_.end() ? nullptr : found->get();
  if (buffer == nullptr) {
    BASCULE_ASSIGN(buffer, add());
  }
  buffer->state = Buffer::State::kIncoming;
  buffer->version = version;
  buffer->digest.reset();
  return buffer;
}

void ReceiveBuffers::came(Buffer& buffer, std::optional<Digest> digest) {
  buffer.state = Buffer::State::kWhole;
  buffer.digest = digest;
}

void ReceiveBuffers::give_up(Buffer& buffer, bool still_written) {
  if (still_written) return drop(buffer);
  buffer.state = Buffer::State::kFree;
}

ReceiveBuffers::Buffer* ReceiveBuffers::whole(Version version) {
  const auto found = std::ranges::find_if(buffers_, [version](const auto& buffer) {
    return buffer->state == Buffer::State::kWhole && buffer->version == version;
  });
  return found == buffers_.end() ? nullptr : found->get();
}

SlotView ReceiveBuffers::take(Buffer& buffer, Epoch epoch) {
  buffer.state = Buffer::State::kRead;
  return {.slot = {epoch, buffer.number},
          .bytes = {buffer.memory.get(), bytes_},
          .device = device_,
          .digest = buffer.digest,
          .memory = buffer.memory};
}

ReceiveBuffers::Buffer* ReceiveBuffers::read(std::uint32_t number) {
  const auto found = std::ranges::find(buffers_, number, [](const auto& buffer) { return buffer->number; });
  return found == buffers_.end() || (*found)->state != Buffer::State::kRead ? nullptr : found->get();
}

void ReceiveBuffers::end_read(std::uint32_t number) {
  Buffer* const buffer = read(number);
  if (buffer == nullptr) return;
  buffer->state = Buffer::State::kFree;
  if (buffers_.size() > kept_ && !place_of(*buffer)) drop(*buffer);
}

std::optional<std::size_t> ReceiveBuffers::place_of(const Buffer& buffer) const {
  const std::size_t place = buffer.number - kOwnMemory;
  return place < kept_ ? std::optional(place) : std::nullopt;
}

}  // namespace bascule::inline v0
