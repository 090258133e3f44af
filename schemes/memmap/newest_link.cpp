#include <bascule/schemes/memmap/newest_link.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

constexpr const char* kSubfolder = "newest";
constexpr const char* kLink = "model.safetensors";
constexpr const char* kNewLink = ".model.safetensors.bascule";  // a temporary name that no other program would choose
constexpr std::string_view kUp = "../";
constexpr mode_t kFolderMode = 0700;

bool is_there(int folder, const char* name) {
  struct stat status {};
  return ::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// Whether `name` is a link to a slot's file.
bool is_ours(int folder, const char* name) {
  std::array<char, NAME_MAX> text{};
  const ssize_t size = ::readlinkat(folder, name, text.data(), text.size());
  const std::string_view target(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return target.starts_with(kUp) && slot_of_file(target.substr(kUp.size())).has_value();
}

void remove_new_link(int folder) {
  if (is_ours(folder, kNewLink)) ::unlinkat(folder, kNewLink, 0);
}

int rename_link(int folder, unsigned flags) { return ::renameat2(folder, kNewLink, folder, kLink, flags); }

// Replaces our link in `folder`. ALREADY_EXISTS: a file of a user has its name.
absl::Status replace_link(int folder, const std::string& target) {
  const bool replaces = is_there(folder, kLink);
  if (replaces && !is_ours(folder, kLink)) return absl::AlreadyExistsError("");
  remove_new_link(folder);  // left by a killed sender
  if (::symlinkat(target.c_str(), folder, kNewLink) != 0) return errno_status(errno, "make it");
  int renamed = rename_link(folder, replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE);
  if (renamed != 0 && (errno == EINVAL || errno == ENOSYS))  // the file system supports neither
    renamed = rename_link(folder, 0);
  absl::Status status = renamed == 0 ? absl::OkStatus() : errno_status(errno, "rename it");
  // The exchange shows what it replaced: a user's file goes back.
  const bool took_its_place = renamed == 0 && is_there(folder, kNewLink) && !is_ours(folder, kNewLink);
  if (took_its_place) rename_link(folder, RENAME_EXCHANGE);
  remove_new_link(folder);
  return took_its_place ? absl::AlreadyExistsError("") : status;
}

}  // namespace

absl::StatusOr<bool> NewestLink::point_to(SlotId newest, const Folder& folder) {
  const std::string path = folder.path() / kNewestLink;
  const auto left_alone = [&](std::string_view what) -> absl::StatusOr<bool> {
    if (std::exchange(was_foreign_, true)) return false;
    return failed_precondition(what, " and was left as it is: programs that open ", path,
                               " do not read the newest version; move it away, or open the file that ", kManifest,
                               " names first");
  };
  if (::mkdirat(folder.fd(), kSubfolder, kFolderMode) != 0 && errno != EEXIST)
    return errno_status(errno, cat("make a folder for the link ", path));
  const UniqueFd subfolder(::openat(folder.fd(), kSubfolder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!subfolder && errno == ENOTDIR) return left_alone(cat((folder.path() / kSubfolder).string(), " is not a folder"));
  if (!subfolder) return errno_status(errno, cat("open the folder of the link ", path));
  absl::Status status = replace_link(subfolder.get(), cat(kUp, slot_file_name(newest)));
  if (absl::IsAlreadyExists(status)) return left_alone(cat(path, " is not Bascule's link"));
  if (!status.ok()) return annotate(status, cat("link ", path));
  was_foreign_ = false;
  return true;
}

}  // namespace bascule::inline v0::memmap
