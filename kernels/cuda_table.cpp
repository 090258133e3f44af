#include <bascule/kernels/cuda_table.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

namespace bascule::inline v0::kernels::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A stream that waits for no other stream, and for which no other waits. (The default stream would not do: no thread
// may use it while a blocking stream is being captured.)
class UploadStream {
 public:
  UploadStream() : made_(BASCULE_CUDA_RESULT(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking))) {}
  ~UploadStream() {
    if (stream_ != nullptr) keep_error(BASCULE_CUDA_RESULT(cudaStreamDestroy(stream_)));
  }
  UploadStream(const UploadStream&) = delete;
  UploadStream& operator=(const UploadStream&) = delete;

  // `from` must stay valid until wait() has returned.
  CudaResult copy(std::byte* to, const void* from, std::size_t bytes) {
    BASCULE_CUDA_PASS(made_);
    BASCULE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    return {};
  }
  CudaResult wait() {
    BASCULE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return {};
  }

 private:
  cudaStream_t stream_ = nullptr;
  CudaResult made_;
};

}  // namespace

CudaResult Event::make(Event* made) {
  Event event;
  int device = -1;
  BASCULE_CUDA_CHECK(cudaGetDevice(&device));
  BASCULE_CUDA_PASS(DeviceLife::of(device, &event.life_));
  BASCULE_CUDA_CHECK(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming));
  *made = std::move(event);
  return {};
}

Event::~Event() {
  if (event_ == nullptr || life_.over()) return;
  const DeviceGuard guard(life_.device());
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaEventDestroy(event_)));
}

CudaResult DeviceTable::make(const TileTable& table, std::size_t tensors, DeviceTable* made) {
  DeviceTable result;
  BASCULE_CUDA_CHECK(cudaGetDevice(&result.device_));
  const DeviceGuard guard(result.device_);
  BASCULE_CUDA_PASS(guard.result());
  result.tiles_ = table.tiles.size();
  result.tensors_ = tensors;
  result.computes_ = !table.arithmetic.empty();
  constexpr std::size_t kMany = 16;  // one of so many
  const auto pages = static_cast<std::size_t>(std::ranges::count(table.tiles, TilePath::kPages, &Tile::path));
  result.many_pages_ = pages * kMany > table.tiles.size();
  if (!table.transposed.empty()) {
    const Transposed& last = table.transposed.back();
    result.transposed_ = {.first = table.transposed.front().first_tile,
                          .last = last.last_tile,
                          .count = last.sums_before + last.last_tile - last.first_tile};
    for (const Transposed& each : table.transposed)
      result.transposed_.types.emplace(each.tensor_dtype, each.slot_dtype);
  }
  const std::size_t tile_bytes = table.tiles.size() * sizeof(Tile), piece_bytes = table.pieces.size() * sizeof(Piece);
  const std::size_t segment_bytes = table.segments.size() * sizeof(Segment);
  const std::size_t arithmetic_bytes = table.arithmetic.size() * sizeof(Arithmetic);
  const std::size_t pieces_at = aligned(tile_bytes), segments_at = pieces_at + aligned(piece_bytes);
  const std::size_t arithmetic_at = segments_at + aligned(segment_bytes);
  const std::size_t transposed_bytes = table.transposed.size() * sizeof(Transposed);
  const std::size_t transposed_at = arithmetic_at + aligned(arithmetic_bytes);
  BASCULE_CUDA_PASS(DeviceMemory::make(transposed_at + transposed_bytes, &result.memory_));
  BASCULE_CUDA_PASS(DeviceMemory::make(tensors * sizeof(void*), &result.addresses_));
  BASCULE_CUDA_PASS(PinnedMemory::make(kAddressSets * tensors * sizeof(void*), &result.sets_));
  for (Event& event : result.copied_) BASCULE_CUDA_PASS(Event::make(&event));
  auto* const begin = result.memory_.as<std::byte>();
  UploadStream stream;
  BASCULE_CUDA_PASS(stream.copy(begin, table.tiles.data(), tile_bytes));
  BASCULE_CUDA_PASS(stream.copy(begin + pieces_at, table.pieces.data(), piece_bytes));
  BASCULE_CUDA_PASS(stream.copy(begin + segments_at, table.segments.data(), segment_bytes));
  BASCULE_CUDA_PASS(stream.copy(begin + arithmetic_at, table.arithmetic.data(), arithmetic_bytes));
  BASCULE_CUDA_PASS(stream.copy(begin + transposed_at, table.transposed.data(), transposed_bytes));
  BASCULE_CUDA_PASS(stream.wait());
  result.view_ = {.tiles = reinterpret_cast<const Tile*>(begin),
                  .pieces = reinterpret_cast<const Piece*>(begin + pieces_at),
                  .segments = reinterpret_cast<const Segment*>(begin + segments_at),
                  .arithmetic = reinterpret_cast<const Arithmetic*>(begin + arithmetic_at),
                  .transposed = reinterpret_cast<const Transposed*>(begin + transposed_at),
                  .addresses = result.addresses_.as<std::byte*>()};
  *made = std::move(result);
  return {};
}

CudaResult DeviceTable::set_addresses(std::span<void* const> addresses, Stream stream) {
  if (addresses.size() != tensors_) return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  void** const last = sets_.as<void*>() + set_ * tensors_;
  if (addresses.empty() || (has_addresses_ && std::equal(addresses.begin(), addresses.end(), last))) return {};
  const std::size_t next = (set_ + 1) % kAddressSets;
  BASCULE_CUDA_CHECK(cudaEventSynchronize(copied_[next].get()));  // an event that was never recorded counts as passed
  void** const set = sets_.as<void*>() + next * tensors_;
  std::copy(addresses.begin(), addresses.end(), set);
  aligned_ = std::ranges::all_of(
      addresses, [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; });
  has_addresses_ = false;  // until the copy is under way
  BASCULE_CUDA_CHECK(
      cudaMemcpyAsync(addresses_.as<void>(), set, addresses.size_bytes(), cudaMemcpyHostToDevice, stream));
  BASCULE_CUDA_CHECK(cudaEventRecord(copied_[next].get(), stream));
  set_ = next;
  has_addresses_ = true;
  return {};
}

CudaResult TilePlan::set(const TileTable& table, std::size_t tensors, std::uint64_t slot_bytes) {
  if (table.tiles.size() != tiles_of(slot_bytes)) return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  slot_bytes_ = slot_bytes;
  BASCULE_CUDA_PASS(DeviceTable::make(table, tensors, &table_));
  return DigestCell::make(&cell_);
}

}  // namespace bascule::inline v0::kernels::cuda
