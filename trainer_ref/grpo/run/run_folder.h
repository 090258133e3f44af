// The folder of --out: looked at before anything is trained, and held by one run at a time.
//
// Threads: one. The lock belongs to this object, and falls with the process, however that ends. Folders that were made
// for a run which left nothing in them go with this object.
#pragma once

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

class RunFolder {
 public:
  // Makes `out` where it is not there, and locks it (run.lock in it). INVALID_ARGUMENT: it holds a run already, other
  // than the one that `resume` (a folder step_N of it, or empty) goes on with. FAILED_PRECONDITION: another process
  // holds it; the text names the process.
  static absl::StatusOr<RunFolder> take(const std::filesystem::path& out, const std::filesystem::path& resume);

  // For what is written at the end, whole: `out` must not exist, and is locked by a file beside it.
  static absl::StatusOr<RunFolder> take_new(const std::filesystem::path& out);

  RunFolder(RunFolder&& other) noexcept = default;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder() = default;

 private:
  // Folders that were not there before, the outermost first: removed where they are empty.
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
  Lock lock_;  // behind made_: its file goes first
};

}  // namespace bascule::ref
