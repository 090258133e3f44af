#include <bascule/base/turns.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::size_t kMostKeyBytes = 1 << 20;

}  // namespace

absl::StatusOr<Turns> Turns::in(const std::filesystem::path& folder, std::string_view example) {
  Turns made;
  made.folder_ = folder;
  BASCULE_ASSIGN(const UniqueFd opened, make_private_folder(folder, example));
  for (const auto& [file, name] : {std::pair(&made.opening_, "base.opening"), {&made.open_, "base.open"}}) {
    // Made here, with its mode, and then checked: the folder may hold files of an earlier time.
    UniqueFd(::openat(opened.get(), name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)).reset();
    BASCULE_ASSIGN(*file, open_private_file(opened.get(), name, O_RDWR, folder));
  }
  return made;
}

absl::Status Turns::begin(Deadline deadline, const std::function<bool()>& interrupted) {
  constexpr auto kPiece = absl::Milliseconds(50);
  while (true) {
    const Deadline piece(std::min(deadline.at(), Deadline(kPiece).at()));
    BASCULE_ASSIGN(const bool taken, try_lock_until(opening_.get(), FileLock::kExclusive, piece));
    if (taken) return absl::OkStatus();
    if (interrupted && interrupted()) return absl::CancelledError("interrupted while another process opens the base");
    if (deadline.passed())
      return deadline_exceeded("another process is still opening the base at ", folder_.string(),
                               "; wait for it, or stop it");
  }
}

absl::StatusOr<bool> Turns::is_first() { return try_lock(open_.get(), FileLock::kExclusive); }

absl::Status Turns::store_key(std::string_view key) {
  const auto size = static_cast<off_t>(key.size());
  const ssize_t written = ::ftruncate(open_.get(), size) == 0 ? ::pwrite(open_.get(), key.data(), key.size(), 0) : -1;
  if (written == size) return absl::OkStatus();
  return errno_status(written < 0 ? errno : ENOSPC, cat("write ", (folder_ / "base.open").string()));
}

absl::StatusOr<std::string> Turns::key() const {
  std::string key(kMostKeyBytes, '\0');
  const ssize_t size = ::pread(open_.get(), key.data(), key.size(), 0);
  if (size < 0) return errno_status(errno, cat("read ", (folder_ / "base.open").string()));
  key.resize(static_cast<std::size_t>(size));
  return key;
}

absl::Status Turns::keep() {
  BASCULE_ASSIGN(const bool kept, try_lock(open_.get(), FileLock::kShared));
  if (!kept) return failed_precondition("another program has locked base.open in ", folder_.string());
  kept_ = true;
  return absl::OkStatus();
}

void Turns::end() {
  if (!kept_) unlock(open_.get());
  unlock(opening_.get());
}

}  // namespace bascule::inline v0
