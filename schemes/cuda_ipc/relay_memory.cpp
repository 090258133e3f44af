#include <bascule/schemes/cuda_ipc/relay_memory.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/cuda/device_slot.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

absl::StatusOr<relay::ShownMemory> make_buffer(const cuda::Device& device, std::uint64_t bytes) {
  relay::ShownMemory buffer;
  BASCULE_ASSIGN(SlotMemory made, cuda::make_device_slot(device, bytes, cuda::ForNetwork::kNo, &buffer.allocated));
  buffer.memory = std::move(made.device_memory);
  buffer.descriptor = std::move(made.descriptor);
  return buffer;
}

absl::StatusOr<ReachedMemory> import(int reader, int descriptor, std::string_view place, std::uint64_t allocated) {
  std::array<std::uint8_t, 16> uuid{};
  if (place.size() != uuid.size()) return invalid_argument("expected a GPU's UUID, found ", place.size(), " bytes");
  std::ranges::transform(place, uuid.begin(), [](char byte) { return static_cast<std::uint8_t>(byte); });
  BASCULE_ASSIGN(const cuda::Device home, cuda::find_device(uuid));
  BASCULE_ASSIGN(const cuda::Allocation allocation,
                 cuda::Allocation::import(home.ordinal, descriptor, allocated, reader));
  const auto mapping = std::make_shared<cuda::DeviceMapping>();
  BASCULE_ASSIGN(*mapping, cuda::DeviceMapping::map(allocation, Access::kReadOnly, reader));
  return ReachedMemory{.bytes = {mapping->data(), mapping->bytes()}, .device = home.ordinal, .owner = mapping};
}

}  // namespace

absl::StatusOr<relay::RelayMemory> relay_memory(int device) {
  BASCULE_ASSIGN(const cuda::Device found, cuda::find_device(device));
  return relay::RelayMemory{
      .device = device,
      .place = std::string(found.uuid.begin(), found.uuid.end()),
      .open_queue = [device] { return open_device(device); },
      .make_buffer = [found](std::uint64_t bytes) { return make_buffer(found, bytes); },
      .import = [device](int descriptor, std::string_view place,
                         std::uint64_t allocated) { return import(device, descriptor, place, allocated); }};
}

}  // namespace bascule::inline v0
