#include "schemes/memmap/receiver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>

#include "kernels/digest.h"
#include "transport/json.h"
#include "transport/posix/cold_read.h"
#include "transport/posix/file_lock.h"
#include "transport/text.h"

namespace bascule::memmap {
namespace {

// What the sender's admit() wrote for one slot.
struct Offered {
  std::uint64_t inode = 0;
  FileShape shape;
};

absl::StatusOr<std::vector<Offered>> read_offer(const ReceivedOffer& offer) {
  BASCULE_ASSIGN(const nlohmann::json json, parse_json(offer.bytes, "memmap: the offer"));
  if (!json.is_array() || json.size() != offer.slots.size())
    return invalid_argument("memmap: expected an offer of ", offer.slots.size(), " files, found ", json.dump());
  std::vector<Offered> files;
  for (const nlohmann::json& item : json) {
    if (!item.is_array() || item.size() != 3 ||
        !std::ranges::all_of(item, [](const nlohmann::json& each) { return each.is_number_unsigned(); }))
      return invalid_argument("memmap: expected [inode, stamp, data], found ", item.dump());
    files.push_back(
        {.inode = item[0], .shape = {.stamp_at = item[1], .data_offset = item[2], .data_bytes = offer.slot_bytes}});
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
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (slots_.contains(offer.slots[i])) continue;  // one address for all versions
    const std::filesystem::path path = folder_ / slot_file_name(offer.slots[i]);
    Slot slot{.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)),
              .shape = files[i].shape,
              .mapping = {},
              .present = true};
    if (!slot.fd) return errno_status(errno, cat("open ", path.string()));
    BASCULE_ASSIGN(const struct stat status, status_of(slot.fd.get(), path));
    if (status.st_ino != files[i].inode)
      return failed_precondition(path.string(), " is not the sender's file (inode ", status.st_ino, ", expected ",
                                 files[i].inode, "): the two see different folders under this name");
    // Offsets come from the other side: in the file, or a touch would be a SIGBUS.
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (slot.shape.data_offset > size || slot.shape.data_bytes > size - slot.shape.data_offset)
      return invalid_argument(path.string(), " has ", size, " bytes, expected ", slot.shape.data_bytes, " behind byte ",
                              slot.shape.data_offset);
    BASCULE_ASSIGN(slot.mapping, Mapping::map(slot.fd.get(), slot.shape.bytes(), Access::kReadOnly));
    slots_.emplace(offer.slots[i], std::move(slot));
  }
  return absl::OkStatus();
}

std::optional<SlotView> MemmapReceiver::find(SlotId slot) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return std::nullopt;
  return SlotView{.slot = slot, .bytes = found->second.data()};
}

absl::StatusOr<SlotView> MemmapReceiver::prepare(const Publication& publication, Deadline deadline) {
  const auto found = slots_.find(publication.slot);
  if (found == slots_.end()) return invalid_argument("memmap: slot ", publication.slot.index, " was not offered");
  Slot& slot = found->second;
  const std::string name = slot_file_name(publication.slot);
  BASCULE_ASSIGN(const bool locked, try_lock_until(slot.fd.get(), FileLock::kShared, deadline));
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
    release(publication.slot);
    return status;
  }
  return SlotView{.slot = publication.slot, .bytes = slot.data()};
}

void MemmapReceiver::release(SlotId slot) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  unlock(found->second.fd.get());
  found->second.held = false;
}

absl::StatusOr<std::vector<FoundVersion>> MemmapReceiver::find_versions(Version newer_than) {
  constexpr int kTries = 3;  // a writer may begin with a file between the manifest and the lock
  std::vector<FoundVersion> found;
  for (int i = 0; i < kTries && found.empty(); ++i) {
    for (const WholeVersion& version : whole_versions(folder_)) {
      if (version.stamp.version <= newer_than || !version.stamp.digest) continue;
      if (absl::StatusOr<FoundVersion> taken = take(version); taken.ok()) found.push_back(*std::move(taken));
    }
  }
  return found;
}

// A file that no sender offered: it says itself what is in it. Its pages come later.
absl::StatusOr<MemmapReceiver::Slot> MemmapReceiver::open(SlotId id, ParsedFile& parsed) const {
  const std::filesystem::path path = folder_ / slot_file_name(id);
  Slot slot;
  slot.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!slot.fd) return errno_status(errno, cat("open ", path.string()));
  BASCULE_ASSIGN(const struct stat status, status_of(slot.fd.get(), path));
  BASCULE_ASSIGN(slot.mapping, Mapping::map(slot.fd.get(), static_cast<std::uint64_t>(status.st_size),
                                            Access::kReadOnly, Pages::kLater));
  BASCULE_ASSIGN(parsed, parse_slot_file(slot.mapping.bytes(), path.string()));
  slot.shape = parsed.shape;
  return slot;
}

// The lock first, then the stamp, which only a writer with the other lock changes: where it says what the manifest
// said, the file holds that version, and goes on holding it.
absl::StatusOr<FoundVersion> MemmapReceiver::take(const WholeVersion& version) {
  const std::string name = slot_file_name(version.slot);
  auto known = slots_.find(version.slot);
  const bool was_held = known != slots_.end() && known->second.held;
  ParsedFile parsed;
  if (known == slots_.end()) {
    BASCULE_ASSIGN(Slot slot, open(version.slot, parsed));
    known = slots_.emplace(version.slot, std::move(slot)).first;
  } else {
    BASCULE_ASSIGN(parsed, parse_slot_file(known->second.mapping.bytes(), name));
  }
  Slot& slot = known->second;
  const auto check = [&]() -> absl::Status {
    BASCULE_ASSIGN(slot.held, try_lock(slot.fd.get(), FileLock::kShared));
    if (!slot.held) return unavailable(name, " is locked by a writer");
    BASCULE_ASSIGN(const Stamp stamp, read_stamp(slot.fd.get(), slot.shape));
    if (stamp == version.stamp && slot.shape.data_bytes == version.bytes) return absl::OkStatus();
    return unavailable(name, " holds another version than the manifest says");
  };
  if (absl::Status status = check(); !status.ok()) {
    if (!was_held) slots_.erase(known);  // and with it the lock
    return status;
  }
  return FoundVersion{.publication = {.version = version.stamp.version,
                                      .slot = version.slot,
                                      .bytes = version.bytes,
                                      .digest = version.stamp.digest},
                      .layout = std::move(parsed.layout),
                      .view = {.slot = version.slot, .bytes = slot.data()},
                      .description = {}};
}

// A file that is in memory is read there. One that is not is read past the page cache: a version that turns out to be
// torn has then thrown nobody's pages out, and a good one is brought in by prepare().
absl::StatusOr<Digest> MemmapReceiver::digest_of(FoundVersion& found, kernels::ThreadPool& pool) {
  const Slot& slot = slots_.at(found.publication.slot);
  if (slot.mapping.in_memory()) {
    found.description = "read in the page cache";
    return kernels::digest(slot.data(), pool);
  }
  kernels::PieceDigest pieces;
  BASCULE_ASSIGN(const std::string how,
                 read_cold(slot.fd.get(), slot.shape.data_offset, slot.shape.data_bytes,
                           [&](std::uint64_t at, std::span<const std::byte> piece) { pieces.add(at, piece); }));
  found.description = cat("read by ", how);
  return pieces.finish(slot.shape.data_bytes);
}

}  // namespace bascule::memmap
