#include <bascule/schemes/memmap/receiver.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <bascule/kernels/digest.h>
#include <bascule/transport/json_value.h>
#include <bascule/transport/posix/cold_read.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;  // read between two checks of a stop token; whole tiles

absl::Status stopped(const FoundVersion& found) {
  return absl::CancelledError(cat("stopped before version ", found.publication.version, " was read"));
}

// One slot's entry in the sender's offer().
struct Offered {
  std::uint64_t inode = 0;
  FileShape shape;
};

absl::StatusOr<std::vector<Offered>> read_offer(const ReceivedOffer& offer) {
  BASCULE_ASSIGN(const JsonValue json, JsonValue::parse(offer.bytes, "memmap: the offer"));
  const JsonValue::Array* const list = json.as_array();
  if (list == nullptr || list->size() != offer.slots.size())
    return invalid_argument("memmap: expected an offer of ", offer.slots.size(), " files, found ",
                            list == nullptr ? cat(json.type_name()) : cat(list->size()));
  std::vector<Offered> files;
  for (const JsonValue& item : *list) {
    const JsonValue::Array* const numbers = item.as_array();
    if (numbers == nullptr || numbers->size() != 3 ||
        !std::ranges::all_of(*numbers, [](const JsonValue& each) { return each.as_unsigned() != nullptr; }))
      return invalid_argument("memmap: expected three numbers for each file of an offer, [inode, stamp, data]");
    files.push_back({.inode = *(*numbers)[0].as_unsigned(),
                     .shape = {.stamp_at = *(*numbers)[1].as_unsigned(),
                               .data_offset = *(*numbers)[2].as_unsigned(),
                               .data_bytes = offer.slot_bytes}});
  }
  return files;
}

absl::StatusOr<struct stat> status_of(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return errno_status(errno, cat("look at ", path.string()));
  return status;
}

}  // namespace

absl::Status MemmapReceiver::accept(ReceivedOffer offer) {
  BASCULE_ASSIGN(const std::vector<Offered> files, read_offer(offer));
  BASCULE_ASSIGN(const Folder folder, Folder::open(folder_));
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (slots_.contains(offer.slots[i])) continue;  // one address for all versions
    const std::string name = slot_file_name(offer.slots[i]);
    const std::filesystem::path path = folder_ / name;
    Slot slot{.fd = {}, .shape = files[i].shape, .mapping = {}, .present = true};
    BASCULE_ASSIGN(slot.fd, folder.file(name));
    BASCULE_ASSIGN(const struct stat status, status_of(slot.fd.get(), path));
    if (status.st_ino != files[i].inode)
      return failed_precondition(path.string(), " is not the sender's file (inode ", status.st_ino, ", expected ",
                                 files[i].inode, "): sender and worker see different folders under this name");
    // Offsets come from the sender; one past the end of the file would cause a SIGBUS.
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (slot.shape.data_offset > size || slot.shape.data_bytes > size - slot.shape.data_offset)
      return invalid_argument(path.string(), " has ", size, " bytes, expected ", slot.shape.data_bytes, " from byte ",
                              slot.shape.data_offset);
    BASCULE_ASSIGN(slot.mapping, Mapping::map(slot.fd.get(), slot.shape.bytes(), Access::kReadOnly));
    slots_.emplace(offer.slots[i], std::move(slot));
  }
  return absl::OkStatus();
}

std::optional<SlotView> MemmapReceiver::find(SlotId slot) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return std::nullopt;
  return SlotView{.slot = slot, .bytes = found->second.data(), .memory = found->second.mapping.keep()};
}

absl::StatusOr<SlotView> MemmapReceiver::prepare(const Publication& publication, Deadline deadline) {
  const auto found = slots_.find(publication.slot);
  if (found == slots_.end()) return invalid_argument("memmap: slot ", publication.slot.index, " was not offered");
  Slot& slot = found->second;
  const std::string name = slot_file_name(publication.slot);
  BASCULE_ASSIGN(const bool locked, looks_only_ ? true : try_lock_until(slot.fd.get(), FileLock::kShared, deadline));
  if (!locked) return deadline_exceeded(name, " is still locked by a writer");
  slot.held = true;
  const auto check = [&]() -> absl::Status {
    BASCULE_ASSIGN(const Stamp stamp, read_stamp(slot.fd.get(), slot.shape));
    if (stamp.version != publication.version || stamp.epoch != publication.slot.epoch)
      return absl::DataLossError(cat(name, " is stamped with version ", stamp.version, " of epoch ", stamp.epoch,
                                     ", expected version ", publication.version, " of ", publication.slot.epoch));
    if (!std::exchange(slot.present, true)) return slot.mapping.populate();
    return absl::OkStatus();
  };
  if (absl::Status status = check(); !status.ok()) {
    end_read(publication.slot);
    return status;
  }
  return SlotView{.slot = publication.slot, .bytes = slot.data(), .memory = slot.mapping.keep()};
}

void MemmapReceiver::end_read(SlotId slot) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  unlock(found->second.fd.get());
  found->second.held = false;
}

absl::StatusOr<std::vector<FoundVersion>> MemmapReceiver::find_versions(Version newer_than) {
  constexpr int kTries = 3;  // a writer may take a file between our read of the manifest and the lock
  std::vector<FoundVersion> found;
  absl::StatusOr<Folder> folder = Folder::open(folder_);
  if (absl::IsNotFound(folder.status())) return found;
  if (!folder.ok()) return folder.status();
  absl::Status denied;
  for (int i = 0; i < kTries && found.empty(); ++i) {
    BASCULE_ASSIGN(const std::vector<WholeVersion> versions, whole_versions(*folder));
    for (const WholeVersion& version : versions) {
      if (version.stamp.version <= newer_than || !version.stamp.digest) continue;
      absl::StatusOr<FoundVersion> taken = take(*folder, version);
      if (taken.ok()) {
        found.push_back(*std::move(taken));
      } else if (absl::IsPermissionDenied(taken.status()) || absl::IsResourceExhausted(taken.status())) {
        denied = taken.status();
      }
    }
  }
  if (found.empty() && !denied.ok()) return denied;
  return found;
}

// Opens a file that no sender offered: its own header describes it. Its pages are brought in later.
absl::StatusOr<MemmapReceiver::Slot> MemmapReceiver::open(const Folder& folder, SlotId id, ParsedFile& parsed) const {
  const std::filesystem::path path = folder_ / slot_file_name(id);
  Slot slot;
  BASCULE_ASSIGN(slot.fd, folder.file(slot_file_name(id)));
  BASCULE_ASSIGN(const struct stat status, status_of(slot.fd.get(), path));
  BASCULE_ASSIGN(slot.mapping, Mapping::map(slot.fd.get(), static_cast<std::uint64_t>(status.st_size),
                                            Access::kReadOnly, Pages::kLater));
  BASCULE_ASSIGN(parsed, parse_slot_file(slot.mapping.bytes(), path.string()));
  slot.shape = parsed.shape;
  return slot;
}

// Locks first, then reads the stamp, which only a writer with the exclusive lock changes. If the stamp agrees with the
// manifest, the file holds that version and keeps it.
absl::StatusOr<FoundVersion> MemmapReceiver::take(const Folder& folder, const WholeVersion& version) {
  const std::string name = slot_file_name(version.slot);
  auto known = slots_.find(version.slot);
  const bool is_new = known == slots_.end(), was_held = !is_new && known->second.held;
  ParsedFile parsed;
  if (is_new) {
    BASCULE_ASSIGN(Slot slot, open(folder, version.slot, parsed));
    known = slots_.emplace(version.slot, std::move(slot)).first;
  } else {
    BASCULE_ASSIGN(parsed, parse_slot_file(known->second.mapping.bytes(), name));
  }
  Slot& slot = known->second;
  const auto check = [&]() -> absl::Status {
    BASCULE_ASSIGN(const bool locked, looks_only_ ? true : try_lock(slot.fd.get(), FileLock::kShared));
    if (!locked) return unavailable(name, " is locked by a writer");
    slot.held = true;
    BASCULE_ASSIGN(const Stamp stamp, read_stamp(slot.fd.get(), slot.shape));
    if (stamp == version.stamp && slot.shape.data_bytes == version.bytes) return absl::OkStatus();
    return unavailable(name, " holds another version than the manifest says");
  };
  if (absl::Status status = check(); !status.ok()) {
    if (is_new) {
      slots_.erase(known);
    } else if (!was_held) {
      end_read(version.slot);  // but stays mapped: tensors of an earlier version may be views of it
    }
    return status;
  }
  return FoundVersion{.publication = {.version = version.stamp.version,
                                      .slot = version.slot,
                                      .bytes = version.bytes,
                                      .digest = version.stamp.digest},
                      .layout = std::move(parsed.layout),
                      .view = {.slot = version.slot, .bytes = slot.data(), .memory = slot.mapping.keep()},
                      .description = {}};
}

// A file in memory is read there. Any other is read past the page cache, so that a torn version displaces no pages;
// prepare() brings in a good one.
// It reads in pieces, so that a sender that starts meanwhile does not wait for a whole model.
absl::StatusOr<Digest> MemmapReceiver::digest_of(FoundVersion& found, kernels::ThreadPool&,
                                                 const std::stop_token& stop) {
  const Slot& slot = slots_.at(found.publication.slot);
  kernels::PieceDigest pieces;
  const auto add = [&](std::uint64_t at, std::span<const std::byte> piece) { pieces.add(at, piece); };
  if (slot.mapping.in_memory()) {
    const std::span<const std::byte> data = slot.data();
    for (std::size_t at = 0; at < data.size(); at += kPiece) {
      if (stop.stop_requested()) return stopped(found);
      add(at, data.subspan(at, std::min(kPiece, data.size() - at)));
    }
    found.description = "read in the page cache";
  } else {
    BASCULE_ASSIGN(const std::string how,
                   read_cold(slot.fd.get(), slot.shape.data_offset, slot.shape.data_bytes, add, stop));
    found.description = cat("read by ", how);
  }
  return pieces.finish(slot.shape.data_bytes);
}

absl::Status MemmapReceiver::bring_in(const FoundVersion& found, const std::stop_token& stop) {
  Slot& slot = slots_.at(found.publication.slot);
  for (std::uint64_t at = 0; at < slot.mapping.bytes().size() && !slot.present; at += kPiece) {
    if (stop.stop_requested()) return stopped(found);
    BASCULE_TRY(slot.mapping.populate(at, kPiece));
  }
  slot.present = true;
  return absl::OkStatus();
}

}  // namespace bascule::inline v0::memmap
