#include <bascule/trainer_ref/grpo/run/run_folder.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/run/json_lines.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// The last step of the run in `out`, by its metrics; the largest number if there are none.
std::int64_t last_step_of(const fs::path& out) {
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  const auto lines = read_json_lines(out / "metrics.jsonl");
  return lines.ok() && !lines->empty() ? lines->back().value("step", kUnknown) : kUnknown;
}

// Returns the checkpoint with the largest step in `out` up to its run's last step (later ones belong to a run that
// was superseded); empty if there is none.
fs::path newest_checkpoint(const fs::path& out) {
  const std::int64_t last = last_step_of(out);
  std::pair<std::int64_t, fs::path> newest{-1, {}};
  std::error_code error;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const std::optional<std::int64_t> step = step_of_checkpoint(name);
    if (!step || !fs::exists(entry->path() / "trainer_state.json", ignored)) continue;
    if (*step <= last) newest = std::max(newest, {*step, entry->path()});
  }
  return newest.second;
}

// How to continue the run in `out`.
std::string how_to_go_on(const fs::path& out) {
  const fs::path newest = newest_checkpoint(out);
  return newest.empty() ? "; it has no checkpoint to continue from (--save-every makes some)"
                        : cat(", or continue its run by --resume=", newest.string());
}

// The name of a file or folder that a run has left in `out`; empty if there is none.
std::string trace_of_run(const fs::path& out) {
  std::error_code ignored;
  if (fs::exists(out / "metrics.jsonl", ignored) && fs::file_size(out / "metrics.jsonl", ignored) > 0)
    return "metrics.jsonl";
  for (fs::directory_iterator entry(out, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (std::string name = entry->path().filename().string(); step_of_checkpoint(name)) return name;
  return "";
}

// Removes parts of checkpoints that killed runs left. An older checkpoint (.old-) stays: it may be the only one of its
// step.
void remove_unfinished_checkpoints(const fs::path& out) {
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_new = name.find(".new-") != std::string::npos || name.find(".tmp-") != std::string::npos;
    const std::size_t dots = std::min(name.find_first_not_of('.'), name.size());
    if (is_new && (dots == 1 || dots == 2) && step_of_checkpoint(name.substr(dots)))
      unfinished.push_back(entry->path());
  }
  for (const fs::path& folder : unfinished) fs::remove_all(folder, error);
}

bool is_in(const fs::path& checkpoint, const fs::path& out) {
  std::error_code ignored;
  return !checkpoint.empty() && fs::equivalent(fs::weakly_canonical(checkpoint, ignored).parent_path(), out, ignored);
}

bool names_still(const fs::path& file, int fd) {
  struct stat named {
  }, opened{};
  return ::stat(file.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

}  // namespace

std::optional<std::int64_t> step_of_checkpoint(std::string_view name) {
  constexpr std::string_view kAdapter = "adapter_", kStep = "step_";
  if (name.starts_with(kAdapter)) name.remove_prefix(kAdapter.size());
  if (!name.starts_with(kStep)) return std::nullopt;
  return std::atoll(std::string(name.substr(kStep.size())).c_str());
}

std::error_code RunFolder::Made::make(const fs::path& folder) {
  std::error_code error;
  fs::path at;
  for (const fs::path& part : folder)
    if (at /= part; fs::create_directory(at, error)) folders_.push_back(at);
  return error;
}

RunFolder::Made::~Made() {
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) ::rmdir(folder->c_str());
}

RunFolder::Lock::~Lock() {
  if (fd_) ::unlink(file_.c_str());  // before the lock is released: no other process can hold it
}

absl::StatusOr<RunFolder::Lock> RunFolder::Lock::take(fs::path file, const fs::path& out) {
  while (true) {
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return errno_status(errno, cat("--out=", out.string(), ": create ", file.string()));
    const absl::StatusOr<bool> locked = try_lock(fd.get(), FileLock::kExclusive);
    if (locked.ok() && !*locked) {
      const std::string pid = read_file(file, 100).value_or("");
      return failed_precondition("--out=", out.string(), ": another run",
                                 pid.empty() ? "" : cat(", process ", pid, ","),
                                 " writes there now; end it first, or give another folder");
    }
    if (locked.ok() && !names_still(file, fd.get())) continue;  // its holder has just removed it
    // On a file system without locks, only the check before training protects the folder.
    if (::ftruncate(fd.get(), 0) == 0) (void)write_all(fd.get(), std::to_string(::getpid()), file.string());
    return Lock(std::move(fd), std::move(file));
  }
}

absl::StatusOr<RunFolder> RunFolder::take(const fs::path& out, const fs::path& resume) {
  Made made;
  if (const std::error_code error = made.make(out))
    return invalid_argument("--out=", out.string(), ": ", error.message(), "; give a folder, as --out=out/run");
  BASCULE_ASSIGN(Lock lock, Lock::take(out / "run.lock", out));
  const std::string trace = trace_of_run(out);
  if (!trace.empty() && !is_in(resume, out))
    return invalid_argument("--out=", out.string(), ": expected no run in it, found ", trace,
                            "; give another folder, remove this one", how_to_go_on(out));
  remove_unfinished_checkpoints(out);
  return RunFolder(std::move(made), std::move(lock));
}

absl::StatusOr<RunFolder> RunFolder::take_new(const fs::path& out) {
  const fs::path target = fs::absolute(out.has_filename() ? out : out.parent_path());
  Made made;
  if (const std::error_code error = made.make(target.parent_path()))
    return invalid_argument("--out=", out.string(), ": ", error.message(), "; give a folder, as --out=out/model");
  BASCULE_ASSIGN(Lock lock, Lock::take(target.parent_path() / cat(".", target.filename().string(), ".lock"), out));
  if (std::error_code ignored; fs::exists(fs::symlink_status(target, ignored)))
    return invalid_argument("--out=", out.string(),
                            " exists: a checkpoint is never overwritten; remove it, or give another name");
  return RunFolder(std::move(made), std::move(lock));
}

}  // namespace bascule::ref
