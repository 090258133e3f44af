#include <bascule/schemes/memmap/sender.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <bascule/schemes/memmap/options.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

namespace fs = std::filesystem;
using Kind = FileOperation::Kind;

constexpr mode_t kReadOnly = 0400;  // a program that opens a slot by its name, such as cp, cannot write it; root can
constexpr absl::Duration kForeignReader = absl::Milliseconds(5);  // how long begin() waits for such a reader

}  // namespace

absl::StatusOr<std::unique_ptr<SenderTransport>> MemmapSender::make(const Endpoint& endpoint, Epoch epoch,
                                                                    FileObserver observer) {
  if (endpoint.slots == 1)
    return invalid_argument("slots=1: readers of the file would lose the version that is written over; use ",
                            "slots=2, or shm for a single copy");
  BASCULE_ASSIGN(Folder folder, Folder::open(endpoint.folder));
  if (kDurable.in(endpoint).value_or(false)) {
    BASCULE_ASSIGN(const bool in_memory, is_in_memory(folder.fd(), endpoint.folder));
    if (in_memory)
      return failed_precondition("durable=on: ", endpoint.folder.string(),
                                 " lies in memory, which a loss of power empties; choose a folder on a disk");
  }
  std::unique_ptr<MemmapSender> made(new MemmapSender(endpoint, std::move(folder), epoch, std::move(observer)));
  BASCULE_TRY(made->find_what_was_left());
  for (const auto& [slot, file] : made->files_)
    if (slot.epoch >= epoch)
      return failed_precondition(
          endpoint.folder.string(), " holds ", slot_file_name(slot), ", and this is epoch ", epoch,
          ": its sender.lock is older than its files; remove the slots' files and manifest.json, or "
          "choose another folder");
  return made;
}

MemmapSender::MemmapSender(const Endpoint& endpoint, Folder folder, Epoch epoch, FileObserver observer)
    : folder_(std::move(folder)),
      epoch_(epoch),
      observer_(std::move(observer)),
      fresh_slots_(kFresh.in(endpoint).value_or(false)),
      syncer_(kDurable.in(endpoint).value_or(false) ? std::make_unique<Syncer>() : nullptr) {}

// Earlier versions stay until one of ours is safe. Files without a version are removed once no process reads them.
absl::Status MemmapSender::find_what_was_left() {
  BASCULE_ASSIGN(const std::vector<WholeVersion> versions, whole_versions(folder_));
  BASCULE_ASSIGN(const std::vector<SlotId> slots, folder_.slots());
  for (const SlotId slot : slots) files_[slot];
  for (const WholeVersion& version : versions) {
    const auto file = files_.find(version.slot);
    if (file == files_.end()) continue;
    file->second.inode = version.inode;
    file->second.shape.data_bytes = version.bytes;
    file->second.whole = true;
    file->second.stamp = version.stamp;
    last_version_ = std::max(last_version_, version.stamp.version);
  }
  return absl::OkStatus();
}

void MemmapSender::tell(Kind kind, std::string_view file) const {
  if (observer_) observer_({.kind = kind, .file = file});
}

absl::StatusOr<std::string_view> MemmapSender::header_for(const Layout& layout) {
  if (header_.empty() || header_of_ != layout.fingerprint()) {
    BASCULE_ASSIGN(header_, make_header(layout, epoch_));
    header_of_ = layout.fingerprint();
  }
  return header_;
}

absl::StatusOr<SlotMemory> MemmapSender::make_slot(SlotId slot, const Layout& layout, int) {
  BASCULE_ASSIGN(const std::string_view header, header_for(layout));
  File made;
  BASCULE_ASSIGN(made.shape, shape_of(header, layout));
  const std::string name = slot_file_name(slot);
  const fs::path path = folder_.path() / name;
  SlotMemory memory;
  memory.descriptor = ProcessFd::make([&] {
    return ::openat(folder_.fd(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kReadOnly);
  });
  if (!memory.descriptor) return errno_status(errno, cat("make ", path.string()));
  const int fd = memory.descriptor.get();
  const auto fill = [&]() -> absl::Status {
    BASCULE_TRY(allocate_file(fd, made.shape.bytes(), path));
    BASCULE_ASSIGN(memory.mapping, Mapping::map(fd, made.shape.bytes(), Access::kReadWrite));
    std::ranges::copy(std::as_bytes(std::span(header)), memory.mapping.writable().begin());
    struct stat status {};
    if (::fstat(fd, &status) != 0) return errno_status(errno, cat("look at ", path.string()));
    made.inode = status.st_ino;
    made.fd = ProcessFd::make([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
    return made.fd ? absl::OkStatus() : errno_status(errno, cat("keep ", path.string()));
  };
  if (absl::Status status = fill(); !status.ok()) {
    ::unlinkat(folder_.fd(), name.c_str(), 0);
    return status;
  }
  tell(Kind::kMade, name);
  tell(Kind::kWritten, name);
  memory.bytes = made.shape.data_bytes;
  memory.data_offset = made.shape.data_offset;
  memory.description = cat("file, mapped", syncer_ ? cat(", durable by ", syncer_->how()) : "");
  made.in_ring = true;
  const std::lock_guard lock(mutex_);
  files_.insert_or_assign(slot, std::move(made));
  return memory;
}

// Locks the file, then takes it from the manifest, then stamps it: a reader that still finds it listed cannot lock it.
absl::Status MemmapSender::begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) {
  std::unique_lock lock(mutex_);
  File& file = files_.at(slot);
  persisted_.wait_until(lock, deadline.at(), [&] { return !persisting_ || !last_of_its_kind(file); });
  if (last_of_its_kind(file)) return unavailable(slot_file_name(slot), " holds the newest version that is on the disk");
  lock.unlock();

  const Deadline soon(std::min(deadline.at(), Clock::now() + on_clock(kForeignReader)));
  BASCULE_ASSIGN(const bool locked, try_lock_until(file.fd.get(), FileLock::kExclusive, soon));
  if (!locked) return unavailable(slot_file_name(slot), " is read by a process that is not a worker of this sender");
  if (absl::Status unlisted = take_from_manifest(file); !unlisted.ok()) {
    unlock(file.fd.get());
    return unlisted;
  }
  const Stamp unwritten{.epoch = epoch_, .version = 0, .digest = std::nullopt};
  lock.lock();
  file.on_disk = false;
  file.stamp = unwritten;
  lock.unlock();
  BASCULE_TRY(write_stamp(file.fd.get(), file.shape, unwritten));
  tell(Kind::kWritten, slot_file_name(slot));
  if (!syncer_) return absl::OkStatus();
  ProcessFd followed = ProcessFd::make([&] { return ::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0); });
  if (!followed) return errno_status(errno, cat("follow ", slot_file_name(slot)));
  const std::uint64_t number =
      syncer_->copy_behind(std::move(followed), file.shape.data_offset, file.shape.data_bytes, bytes_done);
  lock.lock();
  file.sync = number;
  return absl::OkStatus();
}

// When this returns, the file's version is either gone from the manifest or, after an error, still listed.
absl::Status MemmapSender::take_from_manifest(File& file) {
  const std::lock_guard manifest(manifest_mutex_);
  const auto list = [&](bool whole) {
    const std::lock_guard lock(mutex_);
    return std::exchange(file.whole, whole);
  };
  if (!list(false)) return absl::OkStatus();
  absl::Status status = write_manifest();
  if (!status.ok()) list(true);  // and still readable
  return status;
}

// The file's descriptor and shape belong to the public thread, which made them.
absl::Status MemmapSender::seal(const Publication& publication) {
  std::unique_lock lock(mutex_);
  File& file = files_.at(publication.slot);
  const Stamp stamp = file.stamp = {.epoch = epoch_, .version = publication.version, .digest = publication.digest};
  lock.unlock();
  BASCULE_TRY(write_stamp(file.fd.get(), file.shape, stamp));
  tell(Kind::kWritten, slot_file_name(publication.slot));
  unlock(file.fd.get());
  if (syncer_) syncer_->sealed();
  return absl::OkStatus();
}

void MemmapSender::unmake_slot(SlotId slot) {
  ProcessFd closed;  // closes after the unlock
  const std::lock_guard lock(mutex_);
  File& file = files_.at(slot);
  if (file.stamp.epoch == 0) {  // a send that fails may make it again at once, under the same name
    const std::string name = slot_file_name(slot);
    ::unlinkat(folder_.fd(), name.c_str(), 0);
    tell(Kind::kRemoved, name);
    closed = std::move(file.fd);
    files_.erase(slot);
    return;
  }
  file.in_ring = false;
  closed = std::move(file.fd);
  tidy_later();
}

absl::StatusOr<Offer> MemmapSender::offer(WorkerId, ConnectionKind, std::span<const OfferedSlot> slots) {
  std::string offered;
  const std::lock_guard lock(mutex_);
  for (const OfferedSlot& slot : slots) {
    const File& file = files_.at(slot.id);
    absl::StrAppend(&offered, offered.empty() ? "[" : ",", "[", file.inode, ",", file.shape.stamp_at, ",",
                    file.shape.data_offset, "]");
  }
  return Offer{.bytes = offered + "]", .descriptors = {}};
}

absl::Status MemmapSender::publish(const Publication& publication) {
  const std::lock_guard manifest(manifest_mutex_);
  std::unique_lock lock(mutex_);
  File& file = files_.at(publication.slot);
  file.whole = true;
  lock.unlock();
  if (absl::Status status = write_manifest(); !status.ok()) {
    lock.lock();
    file.whole = false;
    return status;
  }
  // The manifest decides. Only foreign readers miss a link that cannot be made.
  const absl::StatusOr<bool> linked = newest_link_.point_to(publication.slot, folder_);
  if (!linked.ok()) warnings_.push_back(std::string(message_of(linked.status())));
  if (linked.value_or(false)) tell(Kind::kLinked, kNewestLink);
  lock.lock();
  persisting_ = syncer_ != nullptr;
  if (!syncer_) tidy_later();
  return absl::OkStatus();
}

std::vector<std::string> MemmapSender::take_warnings() {
  const std::lock_guard manifest(manifest_mutex_);
  return std::exchange(warnings_, {});
}

// Syncs the slot, then the manifest that names it, then the folder. Until the last is done, a loss of power leaves the
// previous version, whose file is untouched.
absl::Status MemmapSender::persist(const Publication& publication, Deadline deadline) {
  const auto sync = [&]() -> absl::Status {
    const std::string name = slot_file_name(publication.slot);
    std::unique_lock lock(mutex_);
    const std::uint64_t number = files_.at(publication.slot).sync;
    lock.unlock();
    std::unique_lock listing(manifest_mutex_);
    const UniqueFd manifest(::fcntl(manifest_.get(), F_DUPFD_CLOEXEC, 0));
    listing.unlock();
    BASCULE_TRY(annotate(syncer_->wait(number, deadline), name));
    tell(Kind::kSynced, name);
    if (::fsync(manifest.get()) != 0) return errno_status(errno, cat("fsync ", path_of_file(manifest.get())));
    tell(Kind::kSynced, kManifest);
    BASCULE_TRY(folder_.sync());
    tell(Kind::kFolderSynced, "");
    return absl::OkStatus();
  };
  absl::Status status = sync();
  const std::lock_guard lock(mutex_);
  if (status.ok()) files_.at(publication.slot).on_disk = true;
  persisting_ = false;
  persisted_.notify_all();
  tidy_later();
  return status;
}

absl::Status MemmapSender::write_manifest() {
  std::vector<WholeVersion> versions;
  std::unique_lock lock(mutex_);
  for (const auto& [slot, file] : files_)
    if (file.whole)
      versions.push_back({.slot = slot, .inode = file.inode, .bytes = file.shape.data_bytes, .stamp = file.stamp});
  lock.unlock();
  absl::StatusOr<UniqueFd> replaced =
      replace_file(folder_.path() / kManifest, manifest_text(std::move(versions)), folder_.fd());
  if (!replaced.ok()) {
    const bool full = absl::IsResourceExhausted(replaced.status());
    return {replaced.status().code(), cat(message_of(replaced.status()), "; ", kManifest,
                                          " stays as it was, and the versions that it lists stay valid",
                                          full ? "; free space in that file system, or choose another folder" : "")};
  }
  UniqueFd manifest = *std::move(replaced);
  tell(Kind::kReplaced, kManifest);
  // The previous manifest is freed with its last descriptor: not here, where a send waits, unless the disk is slow.
  constexpr std::size_t kMostReplaced = 8;
  std::vector<UniqueFd> ended;  // closes after the unlock
  lock.lock();
  replaced_.push_back(std::exchange(manifest_, std::move(manifest)));
  if (replaced_.size() > kMostReplaced) ended.swap(replaced_);
  tidy_later();
  lock.unlock();
  return absl::OkStatus();
}

// A version must stay until a newer one is published and, with durable=on, is on the disk.
bool MemmapSender::last_of_its_kind(const File& file) const {
  const auto outlives_it = [&](const auto& other) {
    return other.second.whole && (syncer_ == nullptr || other.second.on_disk) &&
           other.second.stamp.version > file.stamp.version;
  };
  return file.whole && std::ranges::none_of(files_, outlives_it);
}

void MemmapSender::tidy_later() {
  if (!std::exchange(tidying_, true)) tidier_.submit([this] { tidy(); });
}

// Removes files that the ring does not use: first from the manifest, then from the folder. A file that is read stays
// until the next call, at the latest the next sender's. A reader that opens one between the two keeps its bytes, which
// nothing writes any longer.
void MemmapSender::tidy() {
  std::vector<SlotId> useless;
  std::vector<UniqueFd> replaced;
  {
    const std::lock_guard manifest(manifest_mutex_);
    bool listed = false;
    {
      const std::lock_guard lock(mutex_);
      tidying_ = false;
      replaced.swap(replaced_);
      for (auto& [slot, file] : files_) {
        if (file.in_ring || last_of_its_kind(file)) continue;
        listed |= std::exchange(file.whole, false);
        useless.push_back(slot);
      }
    }
    if (listed && !write_manifest().ok()) return;
  }
  for (const SlotId slot : useless) {
    const std::string name = slot_file_name(slot);
    const UniqueFd fd(::openat(folder_.fd(), name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    if (fd && is_locked(fd.get())) continue;
    if (fd && ::unlinkat(folder_.fd(), name.c_str(), 0) != 0) continue;
    if (fd) tell(Kind::kRemoved, name);
    const std::lock_guard lock(mutex_);
    files_.erase(slot);
  }
}

}  // namespace bascule::inline v0::memmap
