// Syncer: with durable=on, a thread that lets the disk write a slot while it is still being packed, and then waits
// until all of it is on the disk.
//
//   copy_behind() ──▶ copying behind ──sealed()──▶ syncing ──▶ a result for wait()
//                         └──another copy_behind(), or the end──▶ given up
//
// A file that is syncing is finished before the next one begins.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/write_behind.h>
#include <bascule/transport/task_thread.h>

namespace bascule::inline v0::memmap {

class Syncer {
 public:
  ~Syncer();  // waits for a sync under way

  const std::string& how() const { return behind_.how(); }

  // One writer makes these two calls; neither waits. copy_behind() returns a number for wait(). The slot is `bytes`
  // bytes of the file, starting at `data_offset`; the writer stores in `bytes_done` how many of them it has written.
  // `bytes_done` must live until sealed() or another copy_behind() returns, or this object is gone.
  std::uint64_t copy_behind(ProcessFd fd, std::uint64_t data_offset, std::uint64_t bytes,
                            const std::atomic<std::uint64_t>& bytes_done);
  void sealed();

  // Any thread. Waits until the file sealed as `number` is on the disk.
  absl::Status wait(std::uint64_t number, Deadline deadline);

 private:
  struct File {
    ProcessFd fd;
    std::uint64_t data_offset = 0, bytes = 0;
    const std::atomic<std::uint64_t>* bytes_done = nullptr;
  };
  void run(const File& file, std::uint64_t number);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_ = 0;                         // the number of files so far
  std::uint64_t sealed_ = 0;                       // the number of the last sealed file
  std::map<std::uint64_t, absl::Status> results_;  // of files synced and not waited for
  WriteBehind behind_;                             // used by the thread
  TaskThread thread_;                              // declared last: it uses the other members
};

}  // namespace bascule::inline v0::memmap
