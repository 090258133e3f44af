#include "kernels/cuda_table.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

namespace bascule::kernels::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

CudaResult Event::make(Event* made) {
  Event event;
  BASCULE_CUDA_CHECK(cudaGetDevice(&event.device_));
  BASCULE_CUDA_CHECK(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming));
  *made = std::move(event);
  return {};
}

Event::~Event() {
  if (event_ == nullptr) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaEventDestroy(event_)));
}

CudaResult DeviceTable::make(const TileTable& table, std::size_t tensors, DeviceTable* made) {
  DeviceTable result;
  BASCULE_CUDA_CHECK(cudaGetDevice(&result.device_));
  result.tiles_ = table.tiles.size();
  result.tensors_ = tensors;
  const std::size_t tile_bytes = table.tiles.size() * sizeof(Tile), piece_bytes = table.pieces.size() * sizeof(Piece);
  const std::size_t segment_bytes = table.segments.size() * sizeof(Segment);
  const std::size_t pieces_at = aligned(tile_bytes), segments_at = pieces_at + aligned(piece_bytes);
  BASCULE_CUDA_PASS(DeviceMemory::make(segments_at + segment_bytes, &result.memory_));
  BASCULE_CUDA_PASS(DeviceMemory::make(tensors * sizeof(void*), &result.addresses_));
  BASCULE_CUDA_PASS(PinnedMemory::make(kAddressSets * tensors * sizeof(void*), &result.sets_));
  for (Event& event : result.copied_) BASCULE_CUDA_PASS(Event::make(&event));
  auto* const begin = result.memory_.as<std::byte>();
  BASCULE_CUDA_CHECK(cudaMemcpy(begin, table.tiles.data(), tile_bytes, cudaMemcpyHostToDevice));
  BASCULE_CUDA_CHECK(cudaMemcpy(begin + pieces_at, table.pieces.data(), piece_bytes, cudaMemcpyHostToDevice));
  BASCULE_CUDA_CHECK(cudaMemcpy(begin + segments_at, table.segments.data(), segment_bytes, cudaMemcpyHostToDevice));
  // A copy from pageable memory may return before it has landed, and other streams do not wait for it.
  BASCULE_CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
  result.view_ = {.tiles = reinterpret_cast<const Tile*>(begin),
                  .pieces = reinterpret_cast<const Piece*>(begin + pieces_at),
                  .segments = reinterpret_cast<const Segment*>(begin + segments_at),
                  .addresses = result.addresses_.as<std::byte*>()};
  *made = std::move(result);
  return {};
}

CudaResult DeviceTable::set_addresses(std::span<void* const> addresses, Stream stream) {
  if (addresses.size() != tensors_) return BASCULE_CUDA_RESULT(cudaErrorInvalidValue);
  void** const last = sets_.as<void*>() + set_ * tensors_;
  if (addresses.empty() || (has_addresses_ && std::equal(addresses.begin(), addresses.end(), last))) return {};
  const std::size_t next = (set_ + 1) % kAddressSets;
  BASCULE_CUDA_CHECK(cudaEventSynchronize(copied_[next].get()));  // one never recorded has passed
  void** const set = sets_.as<void*>() + next * tensors_;
  std::copy(addresses.begin(), addresses.end(), set);
  has_addresses_ = false;  // until the copy is under way
  BASCULE_CUDA_CHECK(
      cudaMemcpyAsync(addresses_.as<void>(), set, addresses.size_bytes(), cudaMemcpyHostToDevice, stream));
  BASCULE_CUDA_CHECK(cudaEventRecord(copied_[next].get(), stream));
  set_ = next;
  has_addresses_ = true;
  return {};
}

}  // namespace bascule::kernels::cuda
