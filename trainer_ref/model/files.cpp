#include "trainer_ref/model/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "transport/text.h"

namespace bascule::ref {

AtomicFile::AtomicFile(UniqueFd fd, std::filesystem::path path, std::filesystem::path temporary)
    : fd_(std::move(fd)), path_(std::move(path)), temporary_(std::move(temporary)) {}

AtomicFile::~AtomicFile() {
  if (fd_) ::unlink(temporary_.c_str());
}

absl::StatusOr<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  std::filesystem::path temporary = path;
  temporary += cat(".tmp-", ::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return errno_status(errno, cat("create ", temporary.string()));
  return AtomicFile(std::move(fd), path, std::move(temporary));
}

absl::Status AtomicFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno_status(errno, cat("write ", temporary_.string()));
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::append(std::string_view text) { return append(std::as_bytes(std::span(text))); }

absl::Status AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) return errno_status(errno, cat("fsync ", temporary_.string()));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return errno_status(errno, cat("rename ", temporary_.string(), " to ", path_.string()));
  }
  fd_.reset();
  return sync_folder(path_.parent_path());
}

}  // namespace bascule::ref
