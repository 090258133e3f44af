#include <bascule/sender/endpoint_lock.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/open_by.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
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

Epoch now_microseconds() {
  using namespace std::chrono;
  return static_cast<Epoch>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
}

// Returns the record in the file. An empty file is new: its record makes the next epoch, the first one, the current
// time.
absl::StatusOr<Record> read(int fd, const std::filesystem::path& file) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  if (size < 0) return errno_status(errno, cat("read ", file.string()));
  Record record{.pid = 0, .epoch = now_microseconds() - 1, .version = 0};
  if (size == 0) return record;
  // A line that was cut short would scan as smaller numbers, so the text must equal what would be written.
  // NOLINTNEXTLINE(cert-err34-c): see above
  if (std::sscanf(text.data(), kScan, &record.pid, &record.epoch, &record.version) != 3 ||
      line_of(record) != std::string_view(text.data(), static_cast<std::size_t>(size)) ||
      record.epoch == std::numeric_limits<Epoch>::max())  // the next one would be 0, which means none
    return absl::DataLossError(cat(file.string(),
                                   " is not a valid sender.lock; if no sender and no engine of this "
                                   "endpoint is running, remove it"));
  return record;
}

// Names the holder of the lock: the sender that wrote its pid or, if that is gone, a process that it started. With many
// processes and descriptors the search could take long, so it ends after a second.
absl::Status held(int fd, pid_t sender, const std::filesystem::path& folder) {
  const std::optional<OpenFile> file = open_file(fd);
  if (file && has_open(::getpid(), *file, fd))
    return absl::AlreadyExistsError(cat("this process, pid ", ::getpid(), ", has a sender at ", folder.string(),
                                        " already; close that one first, or choose another endpoint"));
  std::vector<Process> others;
  if (file && !has_open(sender, *file))
    others = others_with_open(std::span(&*file, 1), Deadline(absl::Seconds(1))).front();
  const bool lives = others.empty();  // or it is another user's, or in another pid namespace
  if (lives)
    return absl::AlreadyExistsError(
        cat("another sender, pid ", sender, ", holds ", folder.string(), "; stop it, or choose another endpoint"));
  const Process& left = others.front();
  return absl::AlreadyExistsError(
      cat("pid ", left.pid, " (", left.name, ") holds ", folder.string(), ": the last sender, pid ", sender,
          ", left it running, or it is that sender in another container; stop it, or ", "choose another endpoint"));
}

bool is_gone(pid_t pid) { return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH; }

// A program that a sender was starting when it was killed has the lock for a moment.
bool lock_soon(int fd) {
  const Deadline soon(absl::Milliseconds(200));
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (soon.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

// Closing the descriptor does not suffice: a lock lasts until its last copy is closed. In a child that this process
// made without fork() it is the parent's lock.
EndpointLock::~EndpointLock() {
  if (fd_ && owner_ == ::getpid()) ::flock(fd_.get(), LOCK_UN);
}

absl::StatusOr<EndpointLock> EndpointLock::take(UniqueFd folder, std::filesystem::path file) {
  EndpointLock lock;
  lock.folder_ = std::move(folder);
  lock.fd_ = ProcessFd::make([&] {
    return ::openat(lock.folder(), file.filename().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  });
  const auto no_file = [&] {
    return failed_precondition(file.string(),
                               " is not a file: a sender writes its lock under that name; move it away, ",
                               "or choose another endpoint");
  };
  if (!lock.fd_ && (errno == ELOOP || errno == EISDIR || errno == ENXIO)) return no_file();
  if (!lock.fd_) return errno_status(errno, cat("open ", file.string()));
  struct stat what {};
  if (::fstat(lock.fd_.get(), &what) == 0 && !S_ISREG(what.st_mode)) return no_file();
  bool taken = ::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!taken && errno != EWOULDBLOCK) return errno_status(errno, cat("lock ", file.string()));
  BASCULE_ASSIGN(Record last, read(lock.fd_.get(), file));
  if (!taken && is_gone(last.pid)) {
    taken = lock_soon(lock.fd_.get());
    BASCULE_ASSIGN(last, read(lock.fd_.get(), file));
  }
  if (!taken) return held(lock.fd_.get(), last.pid, file.parent_path());
  lock.epoch_ = last.epoch + 1;
  lock.last_version_ = last.version;
  lock.file_ = std::move(file);
  BASCULE_TRY(lock.write(last.version));
  // An epoch must not be used twice, even after a power loss: its files may remain.
  if (::fsync(lock.fd_.get()) != 0) return errno_status(errno, cat("fsync ", lock.file_.string()));
  BASCULE_TRY(sync_folder(lock.folder(), lock.file_.parent_path()));
  return lock;
}

absl::Status EndpointLock::record(Version version) {
  if (version <= last_version_)
    return failed_precondition("version ", version, " is not above the last one, ", last_version_,
                               ": a number is never used twice");
  return write(version);
}

absl::Status EndpointLock::write(Version version) {
  const std::string line = line_of({.pid = ::getpid(), .epoch = epoch_, .version = version});
  if (::pwrite(fd_.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    return errno_status(errno, cat("write ", file_.string()));
  last_version_ = version;
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
