#include "transport/posix/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "transport/text.h"

namespace bascule {

absl::Status make_private_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  if (error) return errno_status(error.value(), cat("make folder ", folder.parent_path().string()));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(errno, cat("make folder ", folder.string()));
  return check_private_folder(folder);
}

absl::Status check_private_folder(const std::filesystem::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return errno_status(errno, cat("look at folder ", folder.string()));
  if (!S_ISDIR(status.st_mode)) return invalid_argument(folder.string(), " is not a folder");
  if (status.st_uid != ::geteuid())
    return absl::PermissionDeniedError(cat("folder ", folder.string(), " belongs to uid ", status.st_uid, ", expected ",
                                           ::geteuid(), "; run both ends as one user, or choose another folder"));
  if ((status.st_mode & 077) != 0)
    return absl::PermissionDeniedError(cat("folder ", folder.string(), " has mode 0",
                                           absl::Hex((status.st_mode >> 6) & 7), absl::Hex((status.st_mode >> 3) & 7),
                                           absl::Hex(status.st_mode & 7), ", expected 0700; run: chmod 700 ",
                                           folder.string()));
  return absl::OkStatus();
}

}  // namespace bascule
