#include <bascule/schemes/memmap/folder.h>

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/folders.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {

absl::StatusOr<Folder> Folder::open(std::filesystem::path path) {
  BASCULE_ASSIGN(UniqueFd fd, open_private_folder(path));
  return Folder(std::move(path), std::move(fd));
}

std::vector<SlotId> Folder::slots() const {
  std::vector<SlotId> slots;
  for (const std::string& name : names_in(fd_.get()))
    if (const std::optional<SlotId> slot = slot_of_file(name)) slots.push_back(*slot);
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

absl::Status Folder::sync() const { return sync_folder(fd_.get(), path_); }

}  // namespace bascule::inline v0::memmap
