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

#include <bascule/schemes/memmap/folder.h>
#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/newest_link.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/schemes/memmap/syncer.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/task_thread.h>

namespace bascule::inline v0::memmap {

class MemmapSender final : public SenderTransport, public KeptSlots {
 public:
  // Returns FAILED_PRECONDITION if durable=on and the file system does not survive a loss of power, or if the folder
  // has files of this epoch or a later one, or digests of another function; the folder is then left unchanged. Returns
  // PERMISSION_DENIED if other users can write the folder or the manifest, INVALID_ARGUMENT if the folder is a symbolic
  // link.
  static absl::StatusOr<std::unique_ptr<SenderTransport>> make(const Endpoint& endpoint, Epoch epoch,
                                                               FileObserver observer);

  absl::Status check(const Layout& layout) override { return header_for(layout).status(); }
  absl::StatusOr<SlotMemory> make_slot(SlotId slot, const Layout& layout, int device) override;
  void unmake_slot(SlotId slot) override;
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) override;
  KeptSlots* kept_slots() override { return this; }

  Version last_version() const override { return last_version_; }
  absl::Status begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) override;
  absl::Status seal(const Publication& publication) override;
  absl::Status publish(const Publication& publication) override;
  std::vector<std::string> take_warnings() override;
  bool fresh_slots() const override { return fresh_slots_; }
  bool persists() const override { return syncer_ != nullptr; }
  absl::Status persist(const Publication& publication, Deadline deadline) override;

 private:
  // One slot's file: its slot is in the ring, or has left the ring, or an earlier sender left the file.
  struct File {
    ProcessFd fd;  // shares its description, which has the lock, with the slot's memory; none if the file was left
    FileShape shape;
    std::uint64_t inode = 0;
    bool in_ring = false;
    bool whole = false;  // published: the manifest names it
    bool on_disk = false;
    Stamp stamp;             // of its version, once sealed; epoch 0: nothing was ever written into it
    std::uint64_t sync = 0;  // the number by which to wait for the syncer
  };

  MemmapSender(const Endpoint& endpoint, Folder folder, Epoch epoch, FileObserver observer);
  absl::Status find_what_was_left();
  absl::StatusOr<std::string_view> header_for(const Layout& layout);
  absl::Status take_from_manifest(File& file);
  absl::Status write_manifest();                  // with only the manifest's mutex held
  bool last_of_its_kind(const File& file) const;  // whether no newer version is whole (and, if durable, on the disk)
  void tidy_later();                              // with mutex_ held
  void tidy();
  void tell(FileOperation::Kind kind, std::string_view file) const;

  const Folder folder_;  // the checked folder, even if it is moved and another takes its name
  const Epoch epoch_;
  const FileObserver observer_;
  const bool fresh_slots_;
  const std::unique_ptr<Syncer> syncer_;  // durable=on
  Version last_version_ = 0;              // the highest among the files that were left
  std::string header_;                    // the header of every file, made once; public thread
  Digest header_of_;                      // the fingerprint of the header's layout

  // Held while a manifest is made and written, even if the disk is slow; locked before mutex_.
  std::mutex manifest_mutex_;
  UniqueFd manifest_;
  std::vector<std::string> warnings_;  // for the next report
  NewestLink newest_link_;

  std::mutex mutex_;  // for all members below; never held during disk access, since the I/O thread locks it
  std::condition_variable persisted_;
  bool persisting_ = false;  // from publish() to the end of persist()
  std::map<SlotId, File> files_;
  std::vector<UniqueFd> replaced_;  // earlier manifests, still open
  bool tidying_ = false;            // tidy() is queued

  TaskThread tidier_;  // removes files; declared last: its tasks use the other members
};

}  // namespace bascule::inline v0::memmap
