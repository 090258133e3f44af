#include <bascule/transport/posix/atomic_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// The path to pass to the system with the folder's descriptor.
std::filesystem::path below(int folder_fd, const std::filesystem::path& path) {
  return folder_fd == AT_FDCWD ? path : path.filename();
}

}  // namespace

AtomicFile::AtomicFile(UniqueFd fd, std::filesystem::path path, std::filesystem::path temporary, int folder_fd)
    : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)), folder_fd_(folder_fd) {}

AtomicFile::~AtomicFile() {
  if (fd_) ::unlinkat(folder_fd_, below(folder_fd_, temporary_).c_str(), 0);
}

absl::StatusOr<AtomicFile> AtomicFile::create(const std::filesystem::path& path, mode_t mode, std::string_view suffix,
                                              int folder_fd) {
  std::filesystem::path temporary = path;
  temporary += suffix.empty() ? cat(".tmp-", ::getpid()) : std::string(suffix);
  UniqueFd fd(::openat(folder_fd, below(folder_fd, temporary).c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return errno_status(errno, cat("create ", temporary.string()));
  return AtomicFile(std::move(fd), path, std::move(temporary), folder_fd);
}

void AtomicFile::reserve(std::size_t bytes) {
  const off_t end = ::lseek(fd_.get(), 0, SEEK_CUR);
  (void)::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, end, static_cast<off_t>(bytes));
}

absl::Status AtomicFile::append(std::span<const std::byte> bytes) {
  return write_all(fd_.get(), bytes, temporary_.string());
}

absl::Status AtomicFile::append(std::string_view text) { return append(std::as_bytes(std::span(text))); }

absl::StatusOr<UniqueFd> AtomicFile::publish() {
  if (::renameat(folder_fd_, below(folder_fd_, temporary_).c_str(), folder_fd_, below(folder_fd_, path_).c_str()) != 0)
    return errno_status(errno, cat("rename ", temporary_.string(), " to ", path_.string()));
  return std::move(fd_);
}

absl::Status AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) return errno_status(errno, cat("fsync ", temporary_.string()));
  BASCULE_TRY(publish().status());
  return sync_folder(path_.parent_path());
}

absl::StatusOr<UniqueFd> replace_file(const std::filesystem::path& path, std::string_view text, int folder_fd) {
  BASCULE_ASSIGN(AtomicFile file, AtomicFile::create(path, 0600, ".new", folder_fd));
  // If the blocks are allocated, ext4 does not start writing them at the rename, which would wait for a busy disk.
  file.reserve(text.size());
  BASCULE_TRY(file.append(text));
  return file.publish();
}

absl::Status write_file(const std::filesystem::path& path, std::string_view text) {
  BASCULE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  BASCULE_TRY(file.append(text));
  return file.commit();
}

}  // namespace bascule::inline v0
