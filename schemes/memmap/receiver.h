// The receiver's end: opens, locks and maps slots' files; with a sender those that it offers, without one those that
// the manifest names. A lease is a shared lock on the file: it needs nobody alive, and falls with the process.
#pragma once

#include <filesystem>
#include <map>

#include "schemes/memmap/manifest.h"
#include "schemes/memmap/slot_file.h"
#include "transport/posix/mapping.h"
#include "transport/posix/unique_fd.h"
#include "transport/scheme.h"

namespace bascule::memmap {

class MemmapReceiver final : public ReceiverTransport {
 public:
  explicit MemmapReceiver(std::filesystem::path folder) : folder_(std::move(folder)) {}

  absl::Status accept(ReceivedOffer offer) override;
  std::optional<SlotView> find(SlotId slot) const override;
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void release(SlotId slot) override;
  void forget(SlotId slot) override { slots_.erase(slot); }
  absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) override;
  absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool) override;

 private:
  struct Slot {
    UniqueFd fd;  // of a description of its own: the lock is this reader's
    FileShape shape;
    Mapping mapping;
    bool present = false;  // its pages were brought in
    bool held = false;     // locked

    std::span<const std::byte> data() const { return mapping.bytes().subspan(shape.data_offset, shape.data_bytes); }
  };

  absl::StatusOr<Slot> open(SlotId id, ParsedFile& parsed) const;
  absl::StatusOr<FoundVersion> take(const WholeVersion& version);

  const std::filesystem::path folder_;
  std::map<SlotId, Slot> slots_;
};

}  // namespace bascule::memmap
