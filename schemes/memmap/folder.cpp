#include <bascule/schemes/memmap/folder.h>

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {

absl::StatusOr<Folder> Folder::open(std::filesystem::path path) {
  BASCULE_ASSIGN(UniqueFd fd, open_private_folder(path));
  return Folder(std::move(path), std::move(fd));
}

std::vector<SlotId> Folder::slots() const {
  std::vector<SlotId> slots;
  UniqueFd readable(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable) return slots;
  const auto close = [](DIR* listing) { ::closedir(listing); };
  const std::unique_ptr<DIR, decltype(close)> listing(::fdopendir(readable.get()), close);
  if (!listing) return slots;
  (void)readable.release();  // the listing owns it now
  while (const dirent* const entry = ::readdir(listing.get()))
    if (const std::optional<SlotId> slot = slot_of_file(entry->d_name)) slots.push_back(*slot);
  return slots;
}

bool Folder::has(const std::string& name) const {
  struct stat status {};
  return ::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

std::string Folder::link_target(const std::string& name) const {
  std::array<char, NAME_MAX> target{};
  const ssize_t size = ::readlinkat(fd_.get(), name.c_str(), target.data(), target.size());
  return {target.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

absl::Status Folder::sync() const {
  const UniqueFd readable(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable) return errno_status(errno, cat("open ", path_.string()));
  return ::fsync(readable.get()) == 0 ? absl::OkStatus() : errno_status(errno, cat("fsync ", path_.string()));
}

}  // namespace bascule::inline v0::memmap
