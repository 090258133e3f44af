// DeviceTable: a TileTable on the device, with the addresses of the tensors, which may change with every call.
//
// The table is uploaded once. Addresses are copied to the device, on the call's stream, only if they changed since the
// last call. They are copied from pinned memory with room for several sets, so the host waits for the device only if
// more than kAddressSets calls with new addresses are under way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/tile_table.h>

namespace bascule::inline v0::kernels::cuda {

// The table as kernels read it.
struct TableView {
  const Tile* tiles = nullptr;
  const Piece* pieces = nullptr;
  const Segment* segments = nullptr;
  const Arithmetic* arithmetic = nullptr;
  const Transposed* transposed = nullptr;
  std::byte* const* addresses = nullptr;
};

class Event {  // without timing
 public:
  static CudaResult make(Event* made);
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)), life_(std::move(other.life_)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(life_, other.life_);
    return *this;
  }
  ~Event();
  CUevent_st* get() const { return event_; }

 private:
  CUevent_st* event_ = nullptr;
  DeviceLife life_;
};

class DeviceTable {
 public:
  // Blocks until the table is uploaded, on a separate stream, so that it waits for no other work.
  static CudaResult make(const TileTable& table, std::size_t tensors, DeviceTable* made);

  int device() const { return device_; }
  std::uint64_t tiles() const { return tiles_; }
  std::size_t tensors() const { return tensors_; }
  bool computes() const { return computes_; }  // whether it has arithmetic
  // Whether many tiles have TilePath::kPages, or an address is no multiple of 16. (A tensor's part may still begin at
  // any address.)
  bool is_irregular() const { return many_pages_ || !aligned_; }
  // From the first tile of TilePath::kTransposed to past the last one, and how many there are.
  struct TransposedTiles {
    std::uint64_t first = 0, last = 0, count = 0;
    std::set<std::pair<DType, DType>> types{};  // of tensors and slot
  };
  const TransposedTiles& transposed() const { return transposed_; }
  const TableView& view() const { return view_; }

  // Gives `addresses`, one per tensor, to the kernels that are launched later on `stream`.
  CudaResult set_addresses(std::span<void* const> addresses, Stream stream);
  // Call it if the enqueued work may never run: the next set_addresses() then copies even unchanged addresses.
  void forget_addresses() { has_addresses_ = false; }

 private:
  static constexpr std::size_t kAddressSets = 4;

  int device_ = -1;
  std::uint64_t tiles_ = 0;
  std::size_t tensors_ = 0;
  bool computes_ = false, many_pages_ = false;
  bool aligned_ = true;  // the last addresses
  TransposedTiles transposed_;
  DeviceMemory memory_, addresses_;
  PinnedMemory sets_;  // kAddressSets times tensors_
  std::array<Event, kAddressSets> copied_;
  std::size_t set_ = 0;  // the set used last
  bool has_addresses_ = false;
  TableView view_;
};

// The common part of PackPlan and UnpackPlan: the table of the segments, and the digest of the slot.
class TilePlan {
 public:
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  int device() const { return table_.device(); }

  // Call it if the enqueued work may never run, because the stream was captured or a later call failed. The next call
  // then does not rely on that work.
  void forget() {
    table_.forget_addresses();
    cell_.forget();
  }

  // The digest of the last slot that was packed or unpacked to its end with want_digest. Valid once an event that was
  // recorded after that work has passed, and until the next call.
  Digest digest() const { return cell_.digest(); }
  TileTotal total() const { return cell_.total(); }  // the sum of its page hashes

 protected:
  // Uploads `table` to the current device. Returns cudaErrorInvalidValue if it does not cover the whole slot.
  CudaResult set(const TileTable& table, std::size_t tensors, std::uint64_t slot_bytes);

  DeviceTable table_;
  DigestCell cell_;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace bascule::inline v0::kernels::cuda
