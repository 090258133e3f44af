// SlotStore: the memory of a sender's slots, and what the control page says of each. Which of them may be written, and
// which are read, the SlotAllocator knows.
//
//   open() or add() ──▶ begin() ──▶ the caller writes ──▶ seal() … drop()
//
// Threads: public; seal() also on the sealing thread. transport() is also the I/O and the storage thread's (scheme.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/packer.h>
#include <bascule/sender/slot_set.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>

namespace bascule::inline v0 {

class SlotStore {
 public:
  // `endpoint` must outlive it.
  static absl::StatusOr<std::unique_ptr<SlotStore>> make(const Scheme& scheme, const Endpoint& endpoint, Epoch epoch);

  SenderTransport& transport() { return *transport_; }
  int control_page() const { return page_.descriptor(); }  // its descriptor

  // Once: makes the endpoint's slots, of the final layout, on `device`. Where it fails, none is made. `packer` must
  // outlive the last add().
  absl::StatusOr<std::vector<OfferedSlot>> open(const Layout& layout, int device, Packer& packer);
  bool is_open() const { return set_ != nullptr; }
  const std::shared_ptr<SlotSet>& set() const { return set_; }  // null until it is open
  SlotMemory& memory(SlotId slot) { return set_->memory.at(slot.index); }
  std::uint64_t slot_bytes() const { return set_->layout.bytes(); }

  absl::StatusOr<OfferedSlot> add(SlotId slot);
  void drop(SlotId slot);

  // Writing begins. UNAVAILABLE: a process reads it that the ring does not know.
  absl::Status begin(SlotId slot, Deadline deadline);
  std::atomic<std::uint64_t>& bytes_done(SlotId slot) { return page_.bytes_done(slot.index); }
  absl::Status seal(const Publication& publication);

  // ---- single copy ----

  // Where each tensor lies in the slot, by each of its names.
  std::map<std::string_view, std::byte*> places(SlotId slot);
  // The slot was not written and still holds that version: says so to workers that join and look at the control page.
  void seal_again(SlotId slot, Version version, const std::optional<Digest>& digest);
  // The sender goes: what the trainer writes from now on, no reader sees. Does nothing where there is no single copy.
  // An error: readers go on to see it.
  absl::Status part_from_readers();

 private:
  SlotStore(const Endpoint& endpoint, Epoch epoch, ControlPage page, std::unique_ptr<SenderTransport> transport)
      : endpoint_(endpoint),
        epoch_(epoch),
        page_(std::move(page)),
        transport_(std::move(transport)),
        kept_(transport_->kept_slots()) {}
  bool single_copy() const { return endpoint_.slots == 1; }

  const Endpoint& endpoint_;
  const Epoch epoch_;
  ControlPage page_;
  std::unique_ptr<SenderTransport> transport_;
  KeptSlots* const kept_;         // of transport_, or null
  std::shared_ptr<SlotSet> set_;  // loans share it
  Packer* packer_ = nullptr;
  int device_ = kHost;
};

}  // namespace bascule::inline v0
