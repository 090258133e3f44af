#include <bascule/bench/run_folders.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "bascule-bench-";
constexpr const char* kLock = "run.lock";

// Returns the lock of a new folder. The lock file gets its name once it is locked, so that no other run finds it free.
// Returns an empty descriptor if the file system has no locks; then only its own run removes the folder.
UniqueFd lock_new(const fs::path& folder) {
  const fs::path unnamed = folder / "run.lock.new", named = folder / kLock;
  UniqueFd fd(::open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return fd;
  const bool taken =
      try_lock(fd.get(), FileLock::kExclusive).value_or(false) && ::rename(unnamed.c_str(), named.c_str()) == 0;
  if (!taken) {
    ::unlink(unnamed.c_str());
    fd.reset();
  }
  return fd;
}

bool is_own(int fd, mode_t kind) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == kind && status.st_uid == ::geteuid();
}

// Returns the lock of a folder that a dead run has left; an empty descriptor for any other folder.
UniqueFd lock_of_dead(const fs::path& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder || !is_own(folder.get(), S_IFDIR)) return {};
  UniqueFd lock(::openat(folder.get(), kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock || !is_own(lock.get(), S_IFREG) || !try_lock(lock.get(), FileLock::kExclusive).value_or(false)) return {};
  return lock;
}

// Removes the lock last: if this is interrupted, the next run continues.
void remove_folder(const fs::path& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename() != kLock) fs::remove_all(entry->path(), ignored);
  fs::remove_all(folder, ignored);
}

}  // namespace

absl::StatusOr<RunFolders> RunFolders::make(const std::vector<fs::path>& parents) {
  RunFolders made;
  for (const fs::path& parent : parents) {
    std::string name = (parent / cat(kPrefix, "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {
      const int error = errno;
      made.remove();
      return errno_status(error, cat("make a folder like ", name));
    }
    made.paths_.emplace_back(name);
    made.locks_.push_back(lock_new(name));
  }
  return made;
}

void RunFolders::remove() const {
  for (const fs::path& folder : paths_) remove_folder(folder);
}

std::vector<fs::path> remove_left_behind(const fs::path& parent) {
  std::vector<fs::path> removed;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const UniqueFd lock = lock_of_dead(entry->path());
    if (!lock) continue;
    remove_folder(entry->path());
    removed.push_back(entry->path());
  }
  return removed;
}

}  // namespace bascule::bench
