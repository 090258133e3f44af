// DeviceCopies: brings slots in host memory or on a peer GPU to a worker that reads on a device. It copies them, piece
// by piece while the sender writes, into its own receive buffers on the device; to the session it looks like a scheme
// that delivers. Slots on the device itself are read in place.
//
//   the sender's slot, in reach of the device ── copy_behind(), prepare() ──▶ a receive buffer on it ──▶ SlotView
//
//   a buffer:  free ──follow──▶ in flight ──prepare──▶ whole, in use ──end_read──▶ free
//
// If the scheme itself delivers a version to a receive buffer (its view's index says so), nothing is copied. The device
// digests a version as it copies; the engine reads the copy once the session has checked that digest. The read of the
// sender's slot ends as soon as the slot is copied; it begins again if ranges are to be read again. Prepare thread.
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
#include <bascule/transport/source.h>

namespace bascule::inline v0 {

class DeviceCopies final : public ReceiverTransport, public CopiesBehind, public ReadsAgain {
 public:
  // `slots` reaches the sender's slots. `kept` is the number of buffers made at the start; more are added while more
  // are read.
  DeviceCopies(std::unique_ptr<ReceiverTransport> slots, int device, std::size_t kept)
      : slots_(std::move(slots)), device_(device), kept_(kept) {}

  absl::Status accept(ReceivedOffer offer) override;
  std::optional<SlotView> find(SlotId slot) const override;  // the sender's slots, and the buffers
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void end_read(SlotId slot) override;
  void unmap(SlotId slot) override;
  CopiesBehind* copies_behind() override { return queue_ ? this : nullptr; }
  KeptVersions* kept_versions() override { return slots_->kept_versions(); }
  Reception* reception() override { return slots_->reception(); }
  ReadsAgain* reads_again() override { return queue_ ? this : slots_->reads_again(); }
  std::string path() const override { return slots_->path(); }

  void copy_behind(const Publication& publication, std::uint64_t bytes_done) override;
  absl::Status settle(Deadline deadline) override { return queue_ ? queue_->settle(deadline) : absl::OkStatus(); }
  absl::StatusOr<Digest> read_again(const Publication& publication, SlotId view, std::span<const ByteRange> ranges,
                                    Deadline deadline) override;

 private:
  struct Buffer {
    std::uint32_t index = 0;  // never reused for other memory
    std::shared_ptr<std::byte> memory;
    std::uint64_t bytes = 0;
    SlotId of{};
    Version version = 0;           // the version that it holds or that is in flight to it
    std::uint64_t bytes_done = 0;  // bytes whose copy is enqueued
    std::optional<Digest> digest{};
    bool in_use = false;
  };
  bool lies_here(SlotId slot) const;
  absl::StatusOr<SourceMemory*> source(const SlotView& place);
  absl::Status open_queue();
  absl::StatusOr<Buffer*> add(std::uint64_t bytes);
  Buffer* find(const Publication& publication);
  Buffer* find_buffer(SlotId view);
  absl::StatusOr<Buffer*> in_flight(const Publication& publication);
  absl::Status copy(Buffer& to, SourceMemory& from, std::uint64_t end, std::uint64_t of_bytes);
  absl::StatusOr<Digest> mend(Buffer& to, const SlotView& from, std::span<const ByteRange> ranges, Deadline deadline);

  std::unique_ptr<ReceiverTransport> slots_;
  const int device_;
  const std::size_t kept_;
  std::unique_ptr<DeviceQueue> queue_;  // made at first use
  std::list<Buffer> buffers_;
  Buffer* incoming_ = nullptr;  // the buffer begun last, whose digest is under way
  std::uint32_t next_ = kOwnMemory;
  std::map<SlotId, SourceMemory> sources_;  // destroyed before slots_ and queue_
};

}  // namespace bascule::inline v0
