// The folder of --out: checked before anything is trained, and locked by one run at a time.
//
// Threads: one. This object holds the lock, which the kernel releases when the process ends for any reason. The
// destructor removes folders that were made for the run and are empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

// Returns N of step_N or adapter_step_N, the names of checkpoints in the folder; nullopt for another name.
std::optional<std::int64_t> step_of_checkpoint(std::string_view name);

class RunFolder {
 public:
  // Makes `out` if it does not exist, and locks it (run.lock in it). `resume` is a checkpoint in `out`, or empty.
  // Returns INVALID_ARGUMENT if `out` has a run other than the one that `resume` continues, and FAILED_PRECONDITION if
  // another process holds the lock; the text names the process.
  static absl::StatusOr<RunFolder> take(const std::filesystem::path& out, const std::filesystem::path& resume);

  // For output that is written whole at the end: `out` must not exist; a file beside it is the lock.
  static absl::StatusOr<RunFolder> take_new(const std::filesystem::path& out);

  RunFolder(RunFolder&& other) noexcept = default;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder() = default;

 private:
  // Folders that did not exist before, the outermost first; removed if they are empty.
  class Made {
   public:
    Made() = default;
    Made(Made&& other) noexcept = default;
    Made& operator=(Made&&) = delete;
    ~Made();
    // Makes `folder` and its parents.
    std::error_code make(const std::filesystem::path& folder);

   private:
    std::vector<std::filesystem::path> folders_;
  };
  class Lock {
   public:
    static absl::StatusOr<Lock> take(std::filesystem::path file, const std::filesystem::path& out);
    Lock(Lock&& other) noexcept = default;
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    Lock(UniqueFd fd, std::filesystem::path file) : fd_(std::move(fd)), file_(std::move(file)) {}
    UniqueFd fd_;
    std::filesystem::path file_;
  };

  RunFolder(Made made, Lock lock) : made_(std::move(made)), lock_(std::move(lock)) {}
  Made made_;
  Lock lock_;  // declared after made_, so that its file is removed first
};

}  // namespace bascule::ref
