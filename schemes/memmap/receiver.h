// The receiver's end: opens, locks and maps the files of slots that the sender offers or, without a sender, that the
// manifest names. A lease is a shared lock on the file: it needs no sender, and ends with the process.
#pragma once

#include <filesystem>
#include <map>

#include <bascule/schemes/memmap/folder.h>
#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0::memmap {

class MemmapReceiver final : public ReceiverTransport, public KeptVersions {
 public:
  // With `looks_only` it locks nothing, so no sender has to avoid the slots that it reads; they may change at any time.
  explicit MemmapReceiver(std::filesystem::path folder, bool looks_only = false)
      : folder_(std::move(folder)), looks_only_(looks_only) {}

  absl::Status accept(ReceivedOffer offer) override;
  std::optional<SlotView> find(SlotId slot) const override;
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void end_read(SlotId slot) override;
  void unmap(SlotId slot) override { slots_.erase(slot); }
  KeptVersions* kept_versions() override { return this; }

  absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) override;
  absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool,
                                   const std::stop_token& stop) override;
  absl::Status bring_in(const FoundVersion& found, const std::stop_token& stop) override;

 private:
  struct Slot {
    UniqueFd fd;  // its own open file description: the lock is this reader's
    FileShape shape;
    Mapping mapping;
    bool present = false;  // its pages were brought in
    bool held = false;     // locked

    std::span<const std::byte> data() const { return mapping.bytes().subspan(shape.data_offset, shape.data_bytes); }
  };

  absl::StatusOr<Slot> open(const Folder& folder, SlotId id, ParsedFile& parsed) const;
  absl::StatusOr<FoundVersion> take(const Folder& folder, const WholeVersion& version);

  const std::filesystem::path folder_;  // opened and checked anew at each accept() and find_versions()
  const bool looks_only_;
  std::map<SlotId, Slot> slots_;  // each mapped until unmap(), held or not: views may exist
};

}  // namespace bascule::inline v0::memmap
