// Mirrors: copies in host memory of slots on a device, for workers that read on the host. One thread makes and fills
// them. A worker's lease on a slot also covers the slot's mirror, because a mirror is written only after its slot.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/device.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/task_thread.h>

namespace bascule::inline v0 {

// The facts of a slot that its mirror depends on.
struct Mirrored {
  int device = kHost;
  std::uint64_t bytes = 0;
};

class Mirrors {
 public:
  using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(int device)>;
  explicit Mirrors(OpenQueue open_queue) : open_queue_(std::move(open_queue)) {}
  ~Mirrors() { stop(); }

  // Any thread may call these; each returns at once. `done` runs on the mirrors' thread, and never after stop(). If no
  // thread can be started, `done` gets that error within the call.

  // Passes `done` a descriptor of the slot's mirror, and makes the mirror first if there is none. Registering a new
  // mirror with the device takes about half a second per GiB.
  void show(SlotId slot, const Mirrored& what, const std::function<void(absl::StatusOr<ProcessFd>)>& done);
  // Fills the mirror with that version once the slot is whole, unless the mirror already holds that version. Does
  // nothing if there is no mirror: show() failed and told the readers why. Passes CANCELLED if `over` was set first.
  // `bytes_done` and `memory` must live until `done`, and are not read after it.
  struct Fill {
    Publication publication;
    const SlotMemory* memory = nullptr;
    const std::atomic<std::uint64_t>* bytes_done = nullptr;
    std::shared_ptr<const std::atomic<bool>> over;
  };
  void fill(const Fill& fill, const std::function<void(absl::Status)>& done);
  void forget(SlotId slot);
  void stop();  // waits for the task under way

 private:
  struct Mirror {
    SlotMemory memory;
    std::shared_ptr<HostWindow> window;  // destroyed before the memory
    Version version = 0;                 // the version that it holds
  };
  absl::Status submit(std::function<void()> task);  // not run after stop()
  absl::StatusOr<Mirror*> mirror_of(SlotId slot, const Mirrored& what);
  std::optional<absl::Status> carry_out(const Fill& fill);  // nullopt if the slot is not whole yet

  const OpenQueue open_queue_;
  std::mutex mutex_;
  std::unique_ptr<TaskThread> thread_;  // started for the first mirror
  bool stopping_ = false;
  // Used by the mirrors' thread.
  std::unique_ptr<DeviceQueue> queue_;
  std::map<SlotId, Mirror> mirrors_;
};

}  // namespace bascule::inline v0
