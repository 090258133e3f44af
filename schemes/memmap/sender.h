// The sender's end: makes the files, locks and stamps them, keeps the manifest, and with durable=on brings both to the
// disk.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "schemes/memmap/manifest.h"
#include "schemes/memmap/memmap.h"
#include "schemes/memmap/slot_file.h"
#include "schemes/memmap/syncer.h"
#include "transport/endpoint.h"
#include "transport/scheme.h"
#include "transport/task_thread.h"

namespace bascule::memmap {

class MemmapSender final : public SenderTransport {
 public:
  // FAILED_PRECONDITION: durable=on where nothing lasts; files of this epoch or a later one.
  static absl::StatusOr<std::unique_ptr<SenderTransport>> make(const Endpoint& endpoint, Epoch epoch,
                                                               FileObserver observer);

  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override;
  absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) override;
  absl::Status seal(const Publication& publication) override;
  void drop(SlotId slot) override;

  absl::StatusOr<Offer> admit(WorkerId worker, const Hello& hello, std::span<const OfferedSlot> slots) override;
  absl::Status publish(const Publication& publication) override;

  bool persists() const override { return syncer_ != nullptr; }
  absl::Status persist(const Publication& publication, Deadline deadline) override;
  Version last_version() const override { return last_version_; }

 private:
  // One slot's file. Of the ring, or left there: by a sender of before, or by the ring, that let go of it.
  struct File {
    UniqueFd fd;  // of one description with the slot's memory, which the lock belongs to; none where it was left
    FileShape shape;
    std::uint64_t inode = 0;
    bool in_ring = false;
    bool whole = false;  // published: the manifest names it
    bool on_disk = false;
    Stamp stamp;             // what it holds, once it is sealed
    std::uint64_t sync = 0;  // the syncer's number for that
  };

  MemmapSender(const Endpoint& endpoint, Epoch epoch, FileObserver observer);
  void find_what_was_left();
  absl::Status write_manifest();
  absl::Status link_newest(SlotId newest);
  bool last_of_its_kind(const File& file) const;  // without it, nothing newer would be safe
  void tidy_later();                              // under the mutex
  void tidy();
  void tell(FileOperation::Kind kind, std::string_view file) const;

  const std::filesystem::path folder_;
  const Epoch epoch_;
  const FileObserver observer_;
  const std::unique_ptr<Syncer> syncer_;  // durable=on
  Version last_version_ = 0;              // of those that were left
  bool keeps_link_ = false;               // model.safetensors is ours

  std::mutex mutex_;  // all below; held for no disk
  std::condition_variable persisted_;
  bool persisting_ = false;  // from publish() to the end of persist()
  std::map<SlotId, File> files_;
  UniqueFd manifest_;
  std::vector<UniqueFd> replaced_;  // manifests of before, still open
  bool tidying_ = false;            // tidy() is to come

  TaskThread tidier_;  // removes files; last: what it runs uses the rest
};

}  // namespace bascule::memmap
