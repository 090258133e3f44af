#include <bascule/transport/posix/files.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

absl::Status no_room(std::uint64_t bytes, const std::filesystem::path& path) {
  struct statvfs room {};
  const bool known = ::statvfs(path.parent_path().c_str(), &room) == 0;
  return absl::ResourceExhaustedError(
      cat(path.string(), " needs ", bytes, " bytes, ",
          known ? cat(std::uint64_t{room.f_bavail} * room.f_frsize, " are free") : "fewer are free",
          " in its file system, and a quota may be lower; free some, choose another folder, or send in a smaller type "
          "(wire_dtype=bf16)"));
}

// Writes zeros, for file systems that cannot allocate.
int write_zeros(int fd, std::uint64_t bytes) {
  const std::vector<char> zeros(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t written =
        ::pwrite(fd, zeros.data(), std::min<std::uint64_t>(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) at += static_cast<std::uint64_t>(written);
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return errno == ENOENT ? absl::NotFoundError(cat(path.string(), ": no such file"))
                           : errno_status(errno, cat("open ", path.string()));
  }
  return read_file(file.get(), path, max_bytes);
}

absl::StatusOr<std::string> read_file(int fd, const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::string text;
  constexpr std::size_t kStep = std::size_t{1} << 16;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kStep);
    const ssize_t got = ::read(fd, text.data() + before, kStep);
    if (got < 0 && errno != EINTR) return errno_status(errno, cat("read ", path.string()));
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text.size() > max_bytes) {
      return invalid_argument(path.string(), " is longer than the ", max_bytes, " bytes that are read here");
    }
    if (got == 0) return text;
  }
}

absl::Status write_all(int fd, std::span<const std::byte> bytes, std::string_view name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno_status(errno, cat("write ", name));
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status write_all(int fd, std::string_view text, std::string_view name) {
  return write_all(fd, std::as_bytes(std::span(text)), name);
}

std::string path_of_file(int fd) {
  const int error = errno;
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(cat("/proc/self/fd/", fd).c_str(), text.data(), text.size());
  errno = error;
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : cat("the file of descriptor ", fd);
}

absl::Status check_file_size(std::uint64_t bytes, std::string_view name) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
    return absl::ResourceExhaustedError(cat(name, " needs ", bytes, " bytes, this process may write files of ",
                                            limit.rlim_cur, "; raise the limit (ulimit -f)"));
  return absl::OkStatus();
}

absl::Status allocate_file(int fd, std::uint64_t bytes, const std::filesystem::path& path) {
  BASCULE_TRY(check_file_size(bytes, path.string()));
  if (bytes == 0) return absl::OkStatus();
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP) error = write_zeros(fd, bytes);
  if (error == ENOSPC || error == EDQUOT) return no_room(bytes, path);
  return error == 0 ? absl::OkStatus() : errno_status(error, cat("allocate ", bytes, " bytes for ", path.string()));
}

absl::Status sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder.empty() ? "." : folder;
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_status(errno, cat("open ", path.string()));
  return sync_folder(fd.get(), path);
}

absl::Status sync_folder(int folder_fd, const std::filesystem::path& folder) {
  const UniqueFd readable(::openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable) return errno_status(errno, cat("open ", folder.string()));
  return ::fsync(readable.get()) == 0 ? absl::OkStatus() : errno_status(errno, cat("fsync ", folder.string()));
}

absl::StatusOr<bool> is_in_memory(int folder_fd, const std::filesystem::path& folder) {
  struct statfs status {};
  if (::fstatfs(folder_fd, &status) != 0) return errno_status(errno, cat("look at folder ", folder.string()));
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

}  // namespace bascule::inline v0
