#include <bascule/transport/posix/private_folder.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <bascule/transport/posix/folders.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::string mode_text(const struct stat& status) {
  return cat("0", absl::Hex((status.st_mode >> 6) & 7), absl::Hex((status.st_mode >> 3) & 7),
             absl::Hex(status.st_mode & 7));
}

// The content of a folder, judged by its first entries.
struct Entries {
  bool none = true;
  bool of_endpoint = false;  // a sender has been here
  bool of_others = false;    // of another user
};
Entries look_into(int folder_fd) {
  constexpr std::size_t kMostEntries = 1000;
  Entries found;
  const absl::StatusOr<std::vector<std::string>> names = names_in(folder_fd, kMostEntries);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {  // if it cannot be read: as if empty
    struct stat entry {};
    if (::fstatat(folder_fd, name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) == 0 && entry.st_uid != ::geteuid())
      found.of_others = true;
    found.none = false;
    if (name == "sender.lock" || name == "manifest.json") found.of_endpoint = true;
  }
  return found;
}

// Whether the folder has other uses: it is sticky, like /tmp, or an entry belongs to another user, or it has entries
// but none of an endpoint, like root's /usr.
bool is_shared(int folder_fd, const struct stat& status) {
  if ((status.st_mode & S_ISVTX) != 0) return true;
  const Entries found = look_into(folder_fd);
  return found.of_others || (!found.none && !found.of_endpoint);
}

bool is_named_by(const char* variable, const struct stat& folder) {
  const char* const path = std::getenv(variable);
  struct stat named {};
  return path != nullptr && ::stat(path, &named) == 0 && named.st_dev == folder.st_dev && named.st_ino == folder.st_ino;
}

// Whether it lies directly below the root and has another purpose: this user's own endpoint has mode 0700 and, once a
// sender was there, that sender's lock.
bool is_top_level(int folder_fd, const struct stat& status) {
  struct stat root {
  }, parent{};
  if (::stat("/", &root) != 0 || ::fstatat(folder_fd, "..", &parent, 0) != 0) return false;
  if (parent.st_dev != root.st_dev || parent.st_ino != root.st_ino) return false;
  const Entries found = look_into(folder_fd);
  return !found.of_endpoint && (!found.none || (status.st_mode & 077) != 0);
}

// The folder's purpose if it clearly is not a run; else empty.
std::string_view other_purpose(int folder_fd, const struct stat& status) {
  if (is_named_by("HOME", status)) return "your home folder";
  if (is_named_by("XDG_RUNTIME_DIR", status)) return "the folder of your whole session (XDG_RUNTIME_DIR)";
  if (is_top_level(folder_fd, status)) return "a folder of the whole system";
  return {};
}

absl::Status check_folder(int folder_fd, const std::filesystem::path& folder, std::string_view example) {
  struct stat status {};
  if (::fstat(folder_fd, &status) != 0) return errno_status(errno, cat("look at folder ", folder.string()));
  if (status.st_uid != ::geteuid())
    return absl::PermissionDeniedError(cat("folder ", folder.string(), " belongs to uid ", status.st_uid, ", expected ",
                                           ::geteuid(), "; run both ends as one user, or choose another folder"));
  const std::string advice = cat("; give a folder that is used for this alone, as ",
                                 example.empty() ? (folder / "run").string() : cat(example));
  if (const std::string_view purpose = other_purpose(folder_fd, status); !purpose.empty())
    return invalid_argument("folder ", folder.string(), " is ", purpose, advice);
  if ((status.st_mode & 077) != 0 && is_shared(folder_fd, status))
    return absl::PermissionDeniedError(cat("folder ", folder.string(), " is also used by others", advice));
  if ((status.st_mode & 077) != 0)
    return absl::PermissionDeniedError(cat("folder ", folder.string(), " has mode ", mode_text(status),
                                           ", expected 0700; run: chmod 700 ", folder.string()));
  return absl::OkStatus();
}

absl::Status check_owner(const struct stat& status, const std::filesystem::path& file) {
  if (S_ISLNK(status.st_mode))
    return absl::PermissionDeniedError(
        cat(file.string(), " is a symbolic link, expected a file of this folder; remove it"));
  if (status.st_uid != ::geteuid())
    return absl::PermissionDeniedError(cat(file.string(), " belongs to uid ", status.st_uid, ", expected ", ::geteuid(),
                                           ": another user made it; remove it"));
  return absl::OkStatus();
}

absl::Status check_file(const struct stat& status, const std::filesystem::path& file) {
  BASCULE_TRY(check_owner(status, file));
  if (!S_ISREG(status.st_mode))
    return absl::PermissionDeniedError(cat(file.string(), " is not a file, expected a file of this folder; remove it"));
  if ((status.st_mode & 022) != 0)
    return absl::PermissionDeniedError(cat(file.string(), " has mode ", mode_text(status),
                                           ", which lets other users write it; expected 0600; remove it, or, if you "
                                           "trust its content, run: chmod 600 ",
                                           file.string()));
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> checked(absl::StatusOr<UniqueFd> fd, const std::filesystem::path& folder,
                                 std::string_view example) {
  if (fd.ok()) BASCULE_TRY(check_folder(fd->get(), folder, example));
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> make_private_folder(const std::filesystem::path& folder, std::string_view example) {
  return checked(reach_folder(folder, MissingFolders::kMake), folder, example);
}

absl::StatusOr<UniqueFd> open_private_folder(const std::filesystem::path& folder, std::string_view example) {
  return checked(reach_folder(folder, MissingFolders::kRefuse), folder, example);
}

absl::StatusOr<UniqueFd> open_private_file(int folder_fd, const std::string& name, int flags,
                                           const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / name;
  struct stat status {};
  // Check the kind of file first: opening a pipe would wait for its other end.
  if (::fstatat(folder_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_status(errno, cat("open ", path.string()));
  BASCULE_TRY(check_file(status, path));
  UniqueFd fd(::openat(folder_fd, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("open ", path.string()));
  BASCULE_TRY(check_file(status, path));
  return fd;
}

absl::StatusOr<UniqueFd> open_private_socket(int folder_fd, const std::string& name,
                                             const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / name;
  UniqueFd fd(::openat(folder_fd, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("look at ", path.string()));
  BASCULE_TRY(check_owner(status, path));
  return fd;
}

absl::StatusOr<std::string> path_through(int fd, std::string_view name) {
  const std::string path = cat("/proc/self/fd/", fd);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0)
    return failed_precondition(path, " is missing: expected /proc to be mounted; mount it");
  return name.empty() ? path : cat(path, "/", name);
}

}  // namespace bascule::inline v0
