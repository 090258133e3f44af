#include <bascule/schemes/landing.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status Landing::open(Allocate allocate, int device, std::uint64_t bytes, std::size_t kept) {
  allocate_ = std::move(allocate);
  device_ = device;
  bytes_ = bytes;
  kept_ = kept;
  while (copies_.size() < kept_) BASCULE_TRY(add().status());
  return absl::OkStatus();
}

absl::StatusOr<Landing::Copy*> Landing::add() {
  BASCULE_ASSIGN(std::shared_ptr<std::byte> memory, allocate_(bytes_, "a copy of the weights"));
  copies_.push_back(std::make_unique<Copy>(Copy{.number = next_++,
                                                .state = Copy::State::kFree,
                                                .memory = std::move(memory),
                                                .version = 0,
                                                .digest = std::nullopt}));
  return copies_.back().get();
}

void Landing::drop(Copy& copy) {
  std::erase_if(copies_, [&](const auto& each) { return each.get() == &copy; });
}

absl::StatusOr<Landing::Copy*> Landing::begin(Version version, std::span<const Version> spared) {
  for (const auto& each : copies_)
    if (each->state == Copy::State::kWhole) each->state = Copy::State::kFree;
  const auto found = std::ranges::find_if(copies_, [&](const auto& each) {
    return each->state == Copy::State::kFree && std::ranges::find(spared, each->version) == spared.end();
  });
  Copy* copy = found == copies_.end() ? nullptr : found->get();
  if (copy == nullptr) {
    BASCULE_ASSIGN(copy, add());
  }
  copy->state = Copy::State::kComing;
  copy->version = version;
  copy->digest.reset();
  return copy;
}

void Landing::came(Copy& copy, std::optional<Digest> digest) {
  copy.state = Copy::State::kWhole;
  copy.digest = digest;
}

void Landing::give_up(Copy& copy, bool still_written) {
  if (still_written) return drop(copy);
  copy.state = Copy::State::kFree;
}

Landing::Copy* Landing::whole(Version version) {
  const auto found = std::ranges::find_if(
      copies_, [version](const auto& copy) { return copy->state == Copy::State::kWhole && copy->version == version; });
  return found == copies_.end() ? nullptr : found->get();
}

SlotView Landing::take(Copy& copy, Epoch epoch) {
  copy.state = Copy::State::kRead;
  return {.slot = {epoch, copy.number},
          .bytes = {copy.memory.get(), bytes_},
          .device = device_,
          .digest = copy.digest,
          .memory = copy.memory};
}

void Landing::release(std::uint32_t number) {
  const auto found = std::ranges::find(copies_, number, [](const auto& copy) { return copy->number; });
  if (found == copies_.end() || (*found)->state != Copy::State::kRead) return;
  (*found)->state = Copy::State::kFree;
  if (copies_.size() > kept_ && !place_of(**found)) copies_.erase(found);
}

std::optional<std::size_t> Landing::place_of(const Copy& copy) const {
  const std::size_t place = copy.number - kOwnMemory;
  return place < kept_ ? std::optional(place) : std::nullopt;
}

}  // namespace bascule::inline v0
