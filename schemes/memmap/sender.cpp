#include "schemes/memmap/sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>

#include "transport/posix/file_lock.h"
#include "transport/posix/files.h"
#include "transport/text.h"

namespace bascule::memmap {
namespace {

namespace fs = std::filesystem;
using Kind = FileOperation::Kind;

constexpr const char* kLink = "model.safetensors";
constexpr absl::Duration kForeignReader = absl::Milliseconds(5);  // how long begin() waits for one

}  // namespace

absl::StatusOr<std::unique_ptr<SenderTransport>> MemmapSender::make(const Endpoint& endpoint, Epoch epoch,
                                                                    FileObserver observer) {
  if (endpoint.slots == 1)
    return invalid_argument("slots=1: a version that is written over would be lost to who reads it from its file; use ",
                            "slots=2, or shm for a single copy");
  if (endpoint.durable) {
    BASCULE_ASSIGN(const bool in_memory, is_in_memory(endpoint.folder));
    if (in_memory)
      return failed_precondition("durable=on: ", endpoint.folder.string(),
                                 " lies in memory, which a loss of power empties; choose a folder on a disk");
  }
  std::unique_ptr<MemmapSender> made(new MemmapSender(endpoint, epoch, std::move(observer)));
  made->find_what_was_left();
  for (const auto& [slot, file] : made->files_)
    if (slot.epoch >= epoch)
      return failed_precondition(endpoint.folder.string(), " holds ", slot_file_name(slot), ", and this is epoch ",
                                 epoch,
                                 ": its sender.lock is of before; remove the slots' files and manifest.json, or "
                                 "choose another folder");
  return made;
}

MemmapSender::MemmapSender(const Endpoint& endpoint, Epoch epoch, FileObserver observer)
    : folder_(endpoint.folder),
      epoch_(epoch),
      observer_(std::move(observer)),
      syncer_(endpoint.durable ? std::make_unique<Syncer>() : nullptr) {}

// Versions of before stay until one of ours is safe; files that hold none go as soon as nobody reads them.
void MemmapSender::find_what_was_left() {
  for (const SlotId slot : slots_in(folder_)) files_[slot];
  for (const WholeVersion& version : whole_versions(folder_)) {
    const auto file = files_.find(version.slot);
    if (file == files_.end()) continue;
    file->second.inode = version.inode;
    file->second.shape.data_bytes = version.bytes;
    file->second.whole = true;
    file->second.stamp = version.stamp;
    last_version_ = std::max(last_version_, version.stamp.version);
  }
  std::error_code error;
  const fs::file_status link = fs::symlink_status(folder_ / kLink, error);
  keeps_link_ = !fs::exists(link) ||
                (fs::is_symlink(link) && slot_of_file(fs::read_symlink(folder_ / kLink, error).native()).has_value());
}

void MemmapSender::tell(Kind kind, std::string_view file) const {
  if (observer_) observer_({.kind = kind, .file = file});
}

absl::StatusOr<SlotMemory> MemmapSender::make_slot(SlotId slot, const Layout& layout, int) {
  BASCULE_ASSIGN(const std::string header, make_header(layout, epoch_));
  File made;
  BASCULE_ASSIGN(made.shape, shape_of(header, layout));
  const std::string name = slot_file_name(slot);
  const fs::path path = folder_ / name;
  SlotMemory memory;
  memory.descriptor.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!memory.descriptor) return errno_status(errno, cat("make ", path.string()));
  const int fd = memory.descriptor.get();
  const auto fill = [&]() -> absl::Status {
    BASCULE_TRY(allocate_file(fd, made.shape.bytes(), path));
    BASCULE_ASSIGN(memory.mapping, Mapping::map(fd, made.shape.bytes(), Access::kReadWrite));
    std::ranges::copy(std::as_bytes(std::span(header)), memory.mapping.writable().begin());
    struct stat status {};
    if (::fstat(fd, &status) != 0) return errno_status(errno, cat("look at ", path.string()));
    made.inode = status.st_ino;
    made.fd.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return made.fd ? absl::OkStatus() : errno_status(errno, cat("keep ", path.string()));
  };
  if (absl::Status status = fill(); !status.ok()) {
    ::unlink(path.c_str());
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

// Locked first, then not listed, then stamped: a reader that still finds it listed cannot lock it.
absl::Status MemmapSender::begin(SlotId slot, const std::atomic<std::uint64_t>& bytes_done, Deadline deadline) {
  std::unique_lock lock(mutex_);
  File& file = files_.at(slot);
  persisted_.wait_until(lock, deadline.at(), [&] { return !persisting_ || !last_of_its_kind(file); });
  if (last_of_its_kind(file)) return unavailable(slot_file_name(slot), " holds the newest version that is on the disk");
  lock.unlock();

  const Deadline soon(std::min(deadline.at(), Clock::now() + absl::ToChronoNanoseconds(kForeignReader)));
  BASCULE_ASSIGN(const bool locked, try_lock_until(file.fd.get(), FileLock::kExclusive, soon));
  if (!locked) return unavailable(slot_file_name(slot), " is read by somebody who is no worker of this sender");
  lock.lock();
  if (std::exchange(file.whole, false)) {
    if (absl::Status status = write_manifest(); !status.ok()) {
      file.whole = true;  // and readable still
      unlock(file.fd.get());
      return status;
    }
  }
  file.on_disk = false;
  file.stamp = {.epoch = epoch_, .version = 0, .digest = std::nullopt};
  BASCULE_TRY(write_stamp(file.fd.get(), file.shape, file.stamp));
  tell(Kind::kWritten, slot_file_name(slot));
  if (!syncer_) return absl::OkStatus();
  UniqueFd followed(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!followed) return errno_status(errno, cat("follow ", slot_file_name(slot)));
  file.sync = syncer_->follow(std::move(followed), file.shape.data_offset, file.shape.data_bytes, bytes_done);
  return absl::OkStatus();
}

absl::Status MemmapSender::seal(const Publication& publication) {
  const std::lock_guard lock(mutex_);
  File& file = files_.at(publication.slot);
  file.stamp = {.epoch = epoch_, .version = publication.version, .digest = publication.digest};
  BASCULE_TRY(write_stamp(file.fd.get(), file.shape, file.stamp));
  tell(Kind::kWritten, slot_file_name(publication.slot));
  unlock(file.fd.get());
  if (syncer_) syncer_->sealed();
  return absl::OkStatus();
}

void MemmapSender::drop(SlotId slot) {
  const std::lock_guard lock(mutex_);
  File& file = files_.at(slot);
  file.in_ring = false;
  file.fd.reset();
  tidy_later();
}

absl::StatusOr<Offer> MemmapSender::admit(WorkerId, const Hello&, std::span<const OfferedSlot> slots) {
  nlohmann::json offered = nlohmann::json::array();
  const std::lock_guard lock(mutex_);
  for (const OfferedSlot& slot : slots) {
    const File& file = files_.at(slot.id);
    offered.push_back({file.inode, file.shape.stamp_at, file.shape.data_offset});
  }
  return Offer{.bytes = offered.dump(), .descriptors = {}};
}

absl::Status MemmapSender::publish(const Publication& publication) {
  const std::lock_guard lock(mutex_);
  File& file = files_.at(publication.slot);
  file.whole = true;
  if (absl::Status status = write_manifest(); !status.ok()) {
    file.whole = false;
    return status;
  }
  persisting_ = syncer_ != nullptr;
  // The manifest is what counts; a link that cannot be made is missed by foreign readers alone.
  if (keeps_link_) (void)link_newest(publication.slot);
  if (!syncer_) tidy_later();
  return absl::OkStatus();
}

// The slot, then the manifest that names it, then the names. Until the last is done, a loss of power leaves the version
// before, whose file nobody has touched.
absl::Status MemmapSender::persist(const Publication& publication, Deadline deadline) {
  const auto sync = [&]() -> absl::Status {
    const std::string name = slot_file_name(publication.slot);
    std::unique_lock lock(mutex_);
    const std::uint64_t number = files_.at(publication.slot).sync;
    const UniqueFd manifest(::fcntl(manifest_.get(), F_DUPFD_CLOEXEC, 0));
    lock.unlock();
    BASCULE_TRY(annotate(syncer_->wait(number, deadline), name));
    tell(Kind::kSynced, name);
    if (::fsync(manifest.get()) != 0) return errno_status(errno, cat("fsync ", kManifest));
    tell(Kind::kSynced, kManifest);
    BASCULE_TRY(sync_folder(folder_));
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
  for (const auto& [slot, file] : files_)
    if (file.whole)
      versions.push_back({.slot = slot, .inode = file.inode, .bytes = file.shape.data_bytes, .stamp = file.stamp});
  BASCULE_ASSIGN(UniqueFd manifest, replace_file(folder_ / kManifest, manifest_text(std::move(versions))));
  tell(Kind::kReplaced, kManifest);
  // The one before ends with its last descriptor: not here, where a send waits, unless the disk is far behind.
  constexpr std::size_t kMostReplaced = 8;
  replaced_.push_back(std::exchange(manifest_, std::move(manifest)));
  if (replaced_.size() > kMostReplaced) replaced_.clear();
  tidy_later();
  return absl::OkStatus();
}

absl::Status MemmapSender::link_newest(SlotId newest) {
  const fs::path link = folder_ / kLink, temporary = folder_ / cat(kLink, ".new");
  ::unlink(temporary.c_str());
  if (::symlink(slot_file_name(newest).c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), link.c_str()) != 0)
    return errno_status(errno, cat("link ", link.string()));
  tell(Kind::kLinked, kLink);
  return absl::OkStatus();
}

// A version must stay until a newer one is published and, with durable=on, on the disk.
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

// Removes files that the ring does not use: first from the manifest, then from the folder. One that is read stays until
// the next time, at the latest until the next sender's.
void MemmapSender::tidy() {
  std::vector<SlotId> useless;
  std::vector<UniqueFd> replaced;
  {
    const std::lock_guard lock(mutex_);
    tidying_ = false;
    replaced.swap(replaced_);
    bool listed = false;
    for (auto& [slot, file] : files_) {
      if (file.in_ring || last_of_its_kind(file)) continue;
      listed |= std::exchange(file.whole, false);
      useless.push_back(slot);
    }
    if (listed && !write_manifest().ok()) return;
  }
  for (const SlotId slot : useless) {
    const fs::path path = folder_ / slot_file_name(slot);
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (fd && !try_lock(fd.get(), FileLock::kExclusive).value_or(false)) continue;
    if (fd && ::unlink(path.c_str()) != 0) continue;
    if (fd) tell(Kind::kRemoved, slot_file_name(slot));
    const std::lock_guard lock(mutex_);
    files_.erase(slot);
  }
}

}  // namespace bascule::memmap
