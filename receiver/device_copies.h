// DeviceCopies: slots in host memory or on a peer GPU, for a worker that reads on a device. It has slots of its own
// there, and copies what the sender writes into them piece by piece behind it; what it shows is a scheme with memory of
// its own here. Slots of the device itself are read in place.
//
//   the sender's slot, in reach of the device ── copy_behind(), prepare() ──▶ a receive buffer on it ──▶ SlotView
//
//   a buffer:  free ──follow──▶ in flight ──prepare──▶ whole, in use ──end_read──▶ free
//
// A scheme that itself brings a version to memory of its own here (its view has such a number) has nothing to be
// copied. A version is digested by the device as it comes, and read once the session finds that right. The read of the
// sender's slot ends as soon as it is copied. Prepare thread.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class DeviceCopies final : public ReceiverTransport, public CopiesBehind {
 public:
  // Of the slots that `slots` reaches. `kept`: buffers that are made when it joins; there are more while more are read.
  DeviceCopies(std::unique_ptr<ReceiverTransport> slots, int device, std::size_t kept)
      : slots_(std::move(slots)), device_(device), kept_(kept) {}

  absl::Status accept(ReceivedOffer offer) override;
  std::optional<SlotView> find(SlotId slot) const override;  // of the sender's, and of buffers
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void end_read(SlotId slot) override;
  void unmap(SlotId slot) override;
  CopiesBehind* copies_behind() override { return queue_ ? this : nullptr; }
  KeptVersions* kept_versions() override { return slots_->kept_versions(); }
  Reception* reception() override { return slots_->reception(); }
  std::string path() const override { return slots_->path(); }

  void copy_behind(const Publication& publication, std::uint64_t bytes_done) override;
  absl::Status settle(Deadline deadline) override { return queue_ ? queue_->settle(deadline) : absl::OkStatus(); }

 private:
  struct Buffer {
    std::uint32_t index = 0;  // never used again for other memory
    std::shared_ptr<std::byte> memory;
    std::uint64_t bytes = 0;
    SlotId of{};
    Version version = 0;           // that it holds, or that is in flight to it
    std::uint64_t bytes_done = 0;  // enqueued
    std::optional<Digest> digest{};
    bool in_use = false;
  };
  bool lies_here(SlotId slot) const;
  absl::StatusOr<HostWindow*> window(const SlotView& place);
  absl::StatusOr<std::shared_ptr<HostWindow>> open(const SlotView& place);
  absl::StatusOr<Buffer*> add(std::uint64_t bytes);
  Buffer* find(const Publication& publication);
  absl::StatusOr<Buffer*> in_flight(const Publication& publication);
  absl::Status copy(Buffer& to, HostWindow& from, std::uint64_t end, std::uint64_t of_bytes);

  std::unique_ptr<ReceiverTransport> slots_;
  const int device_;
  const std::size_t kept_;
  std::unique_ptr<DeviceQueue> queue_;  // made when it is first needed
  std::list<Buffer> buffers_;
  Buffer* incoming_ = nullptr;  // the last one that was begun: its digest is under way
  std::uint32_t next_ = kOwnMemory;
  struct Window {
    const std::byte* of = nullptr;
    std::shared_ptr<HostWindow> window;
  };
  std::map<SlotId, Window> windows_;  // go before slots_ and queue_
};

}  // namespace bascule::inline v0
