#include "sender/endpoint_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "transport/posix/files.h"
#include "transport/text.h"

namespace bascule {
namespace {

constexpr const char* kFormat = "bascule sender.lock 1 pid %010d epoch %020" PRIu64 " version %020" PRIu64 "\n";
constexpr const char* kScan = "bascule sender.lock 1 pid %d epoch %" SCNu64 " version %" SCNu64;

struct Record {
  int pid = 0;
  Epoch epoch = 0;
  Version version = 0;
};

std::string line_of(const Record& record) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), kFormat, record.pid, record.epoch, record.version);
  return text.data();
}

// An empty file is a new one; the epoch before the first is the time.
absl::StatusOr<Record> read(int fd, const std::filesystem::path& file) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  if (size < 0) return errno_status(errno, cat("read ", file.string()));
  Record record{.pid = 0, .epoch = static_cast<Epoch>(std::time(nullptr)) - 1, .version = 0};
  if (size == 0) return record;
  // A line that was cut short would scan as smaller numbers, so what was read must be what would be written.
  // NOLINTNEXTLINE(cert-err34-c): see above
  if (std::sscanf(text.data(), kScan, &record.pid, &record.epoch, &record.version) != 3 ||
      line_of(record) != std::string_view(text.data(), static_cast<std::size_t>(size)))
    return absl::DataLossError(cat(file.string(),
                                   " does not read as a sender.lock; if no sender and no engine of this "
                                   "endpoint is running, remove it"));
  return record;
}

}  // namespace

absl::StatusOr<EndpointLock> EndpointLock::take(const std::filesystem::path& file) {
  EndpointLock lock;
  lock.fd_.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.fd_) return errno_status(errno, cat("open ", file.string()));
  const bool taken = ::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!taken && errno != EWOULDBLOCK) return errno_status(errno, cat("lock ", file.string()));
  BASCULE_ASSIGN(const Record last, read(lock.fd_.get(), file));
  if (!taken)
    return absl::AlreadyExistsError(cat("another sender, pid ", last.pid, ", holds ", file.parent_path().string(),
                                        "; stop it, or choose another endpoint"));
  lock.epoch_ = last.epoch + 1;
  lock.last_version_ = last.version;
  BASCULE_TRY(lock.record(last.version));
  // An epoch must not be used twice, after a loss of power neither: files may be left of it.
  BASCULE_TRY(sync_file(file));
  BASCULE_TRY(sync_folder(file.parent_path()));
  return lock;
}

absl::Status EndpointLock::record(Version version) {
  const std::string line = line_of({.pid = ::getpid(), .epoch = epoch_, .version = version});
  if (::pwrite(fd_.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    return errno_status(errno, "write sender.lock");
  last_version_ = version;
  return absl::OkStatus();
}

}  // namespace bascule
