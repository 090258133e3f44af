// SlotStore: the memory of a sender's slots, and their records on the control page. The SlotAllocator knows which slots
// are read, and which may be written.
//
//   open() or add() ──▶ begin() ──▶ the caller writes ──▶ seal() … drop()
//
// Threads: the sender's public thread makes these calls; its sealing thread also calls seal() and memory(). The I/O and
// storage threads also use transport() (scheme.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
  // `endpoint` must outlive the result.
  static absl::StatusOr<std::unique_ptr<SlotStore>> make(const Scheme& scheme, const Endpoint& endpoint, Epoch epoch);

  SenderTransport& transport() { return *transport_; }
  int control_page() const { return page_.descriptor(); }  // the control page's descriptor, once the slots are open

  // Call once: makes the endpoint's slots on `device`, with the final layout. If it fails, no slot is made. `packer`
  // must outlive the last add(). `adopted`, if given, is the memory of the one slot.
  absl::StatusOr<std::vector<OfferedSlot>> open(const SharedLayout& layout, int device, Packer& packer,
                                                const SlotHandle* adopted = nullptr);
  bool is_open() const { return set_ != nullptr; }
  const std::shared_ptr<SlotSet>& set() const { return set_; }  // null until it is open
  SlotMemory& memory(SlotId slot) { return set_->memory.at(slot.index); }
  std::uint64_t slot_bytes() const { return set_->layout->bytes(); }

  absl::StatusOr<OfferedSlot> add(SlotId slot, const SlotHandle* adopted = nullptr);
  void drop(SlotId slot);

  // Call it when writing begins. Returns UNAVAILABLE if a process unknown to the ring reads the slot.
  absl::Status begin(SlotId slot, Deadline deadline);
  std::atomic<std::uint64_t>& bytes_done(SlotId slot) { return page_.bytes_done(slot.index); }
  SlotTable fill_table(SlotId slot);  // the table that the version written next gets; or none
  absl::Status seal(const Publication& publication);

  // Maps a sealed slot for reading only, at another address: from now on no process can write it. Does nothing if it
  // was adopted. If it fails, the slot stays as it is.
  absl::Status freeze(SlotId slot);
  absl::StatusOr<std::shared_ptr<const SlotHandle>> handle_of(SlotId slot) const;

  // ---- single copy ----

  // Where each tensor lies in the slot, by each of its names.
  std::map<std::string_view, std::byte*> places(SlotId slot);
  // Call it if the slot was not written and still holds that version. Restores its record, which joining workers read.
  void seal_again(SlotId slot, Version version, const std::optional<Digest>& digest);
  // For the sender's end: readers no longer see what the trainer then writes to the single copy. Does nothing without a
  // single copy, or if it lies in device memory. After an error readers still see what is written.
  absl::Status part_from_readers();

 private:
  SlotStore(const Endpoint& endpoint, Epoch epoch, ControlPage page, std::unique_ptr<SenderTransport> transport)
      : endpoint_(endpoint),
        epoch_(epoch),
        page_(std::move(page)),
        transport_(std::move(transport)),
        kept_(transport_->kept_slots()) {}
  bool single_copy() const { return endpoint_.single_copy(); }

  const Endpoint& endpoint_;
  const Epoch epoch_;
  ControlPage page_;
  std::unique_ptr<SenderTransport> transport_;
  KeptSlots* const kept_;                                                // transport_->kept_slots(), or null
  std::map<std::uint32_t, std::unique_ptr<DeviceTable>> device_tables_;  // by slot; destroyed before the page
  std::shared_ptr<SlotSet> set_;                                         // loans share it
  Packer* packer_ = nullptr;
  int device_ = kHost;
  bool frozen_ = false;  // see freeze()
};

}  // namespace bascule::inline v0
