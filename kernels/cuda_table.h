// DeviceTable: a TileTable on the device, and the addresses of tensors, which may change with every call.
//
// The table is uploaded once. Addresses are copied, on the call's stream, only if they changed since the last call. The
// pinned memory for that holds several sets, so the host waits for the device only if more than kAddressSets calls with
// new addresses are under way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/tile_table.h>

namespace bascule::inline v0::kernels::cuda {

// The table as kernels read it.
struct TableView {
  const Tile* tiles = nullptr;
  const Piece* pieces = nullptr;
  const Segment* segments = nullptr;
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
  // Blocks; uses a separate stream, so that it waits for no other work.
  static CudaResult make(const TileTable& table, std::size_t tensors, DeviceTable* made);

  int device() const { return device_; }
  std::uint64_t tiles() const { return tiles_; }
  std::size_t tensors() const { return tensors_; }
  const TableView& view() const { return view_; }

  // Later kernels on `stream` find `addresses`, one per tensor.
  CudaResult set_addresses(std::span<void* const> addresses, Stream stream);
  // The enqueued work may never run: the next call copies its addresses even if they are the same.
  void forget_addresses() { has_addresses_ = false; }

 private:
  static constexpr std::size_t kAddressSets = 4;

  int device_ = -1;
  std::uint64_t tiles_ = 0;
  std::size_t tensors_ = 0;
  DeviceMemory memory_, addresses_;
  PinnedMemory sets_;  // kAddressSets times tensors_
  std::array<Event, kAddressSets> copied_;
  std::size_t set_ = 0;  // the last one used
  bool has_addresses_ = false;
  TableView view_;
};

// The common part of PackPlan and UnpackPlan: the table of their segments and the digest of the slot.
class TilePlan {
 public:
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  int device() const { return table_.device(); }

  // The enqueued work may never run, as when the stream was captured or a later call failed: the next call does not
  // rely on it.
  void forget() {
    table_.forget_addresses();
    cell_.forget();
  }

  // The digest of the last slot that was packed or unpacked to its end with want_digest: valid from when an event after
  // that work has passed until the next call.
  Digest digest() const { return cell_.digest(); }

 protected:
  // On the current device. cudaErrorInvalidValue: `table` does not cover the whole slot.
  CudaResult set(const TileTable& table, std::size_t tensors, std::uint64_t slot_bytes);

  DeviceTable table_;
  DigestCell cell_;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace bascule::inline v0::kernels::cuda
