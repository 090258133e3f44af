// Mirrors: of slots on a device, copies in host memory, for workers that read there. A thread of its own makes them and
// fills them. A worker's lease on a slot is one on its mirror, too: it is written when its slot has been, and at no
// other time.
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

// A slot, as far as its mirror depends on it.
struct Mirrored {
  int device = kHost;
  std::uint64_t bytes = 0;
};

class Mirrors {
 public:
  using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(int device)>;
  explicit Mirrors(OpenQueue open_queue) : open_queue_(std::move(open_queue)) {}
  ~Mirrors() { stop(); }

  // Any thread; each returns at once, and its answer comes from the mirrors' thread, none after stop(). Where no thread
  // is to be had, that is the answer, from within the call.

  // A descriptor of the slot's mirror, which is made if there is none. Registering it with the device takes about half
  // a second a GiB.
  void show(SlotId slot, const Mirrored& what, const std::function<void(absl::StatusOr<ProcessFd>)>& done);
  // Fills the mirror with that version, once the slot is whole; it may hold it already. Where there is no mirror, there
  // is nothing to fill: show() came first, and has told the readers why. CANCELLED: `over` was set first. What
  // `bytes_done` and `memory` say lives until `done`, and is read no more then.
  struct Fill {
    Publication publication;
    const SlotMemory* memory = nullptr;
    const std::atomic<std::uint64_t>* bytes_done = nullptr;
    std::shared_ptr<const std::atomic<bool>> over;
  };
  void fill(const Fill& fill, const std::function<void(absl::Status)>& done);
  void forget(SlotId slot);
  void stop();  // waits for what is under way

 private:
  struct Mirror {
    SlotMemory memory;
    std::shared_ptr<HostWindow> window;  // goes first
    Version version = 0;                 // that it holds
  };
  absl::Status submit(std::function<void()> task);  // not run behind stop()
  absl::StatusOr<Mirror*> mirror_of(SlotId slot, const Mirrored& what);
  std::optional<absl::Status> carry_out(const Fill& fill);  // none: its slot is not whole yet

  const OpenQueue open_queue_;
  std::mutex mutex_;
  std::unique_ptr<TaskThread> thread_;  // from the first mirror on
  bool stopping_ = false;
  // The mirrors' thread.
  std::unique_ptr<DeviceQueue> queue_;
  std::map<SlotId, Mirror> mirrors_;
};

}  // namespace bascule::inline v0
