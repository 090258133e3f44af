#include <bascule/schemes/memmap/folder.h>

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

absl::StatusOr<std::vector<SlotId>> Folder::slots() const {
  BASCULE_ASSIGN(const std::vector<std::string> names, names_in(fd_.get()));
  std::vector<SlotId> slots;
  for (const std::string& name : names)
    if (const std::optional<SlotId> slot = slot_of_file(name)) slots.push_back(*slot);
  return slots;
}

absl::Status Folder::sync() const { return sync_folder(fd_.get(), path_); }

}  // namespace bascule::inline v0::memmap
