#include <bascule/schemes/auto/mirrors.h>

#include <fcntl.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {
namespace {

// A copy to the host that has begun ends within this time, unless the device hangs.
constexpr absl::Duration kUnderWay = absl::Seconds(10);

// Packing takes a thirtieth of the time of the copy to the host, so this thread sleeps until it is done.
constexpr std::chrono::microseconds kPause{50};

}  // namespace

absl::Status Mirrors::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return absl::OkStatus();
  if (!thread_) {
    BASCULE_TRY(starting_threads("mirrors of slots", [this] {
      thread_ = std::make_unique<TaskThread>();
      return absl::OkStatus();
    }));
    thread_->submit(own_thread_of_devices);
  }
  thread_->submit(std::move(task));
  return absl::OkStatus();
}

void Mirrors::show(SlotId slot, const Mirrored& what, const std::function<void(absl::StatusOr<ProcessFd>)>& done) {
  const absl::Status started = submit([this, slot, what, done] {
    absl::StatusOr<Mirror*> mirror = mirror_of(slot, what);
    if (!mirror.ok()) return done(mirror.status());
    const int descriptor = (*mirror)->memory.descriptor.get();
    ProcessFd copy = ProcessFd::make([descriptor] { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); });
    if (!copy) return done(errno_status(errno, "copy the descriptor of a mirror"));
    done(std::move(copy));
  });
  if (!started.ok()) done(started);
}

// While the slot is written, the thread runs its other tasks in between.
void Mirrors::fill(const Fill& fill, const std::function<void(absl::Status)>& done) {
  const absl::Status started = submit([this, fill, done] {
    const std::optional<absl::Status> filled = carry_out(fill);
    if (filled) return done(*filled);
    std::this_thread::sleep_for(kPause);
    this->fill(fill, done);
  });
  if (!started.ok()) done(started);
}

void Mirrors::forget(SlotId slot) {
  const std::lock_guard lock(mutex_);
  if (!stopping_ && thread_) thread_->submit([this, slot] { mirrors_.erase(slot); });
}

void Mirrors::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.reset();
}

absl::StatusOr<Mirrors::Mirror*> Mirrors::mirror_of(SlotId slot, const Mirrored& what) {
  const auto known = mirrors_.find(slot);
  if (known != mirrors_.end()) return &known->second;
  if (!queue_) {
    BASCULE_ASSIGN(queue_, open_queue_(what.device));
  }
  Mirror made;
  BASCULE_ASSIGN(made.memory, make_memfd("bascule-mirror", what.bytes));
  made.memory.mapping.keep_from_children();
  BASCULE_ASSIGN(made.window, queue_->open_window(made.memory.writable(), kHost, Access::kReadWrite));
  return &mirrors_.insert_or_assign(slot, std::move(made)).first->second;
}

std::optional<absl::Status> Mirrors::carry_out(const Fill& fill) {
  if (*fill.over) return absl::CancelledError("the version was given up");
  const auto found = mirrors_.find(fill.publication.slot);
  if (found == mirrors_.end() || found->second.version == fill.publication.version) return absl::OkStatus();
  if (fill.bytes_done->load(std::memory_order_acquire) < fill.publication.bytes) return std::nullopt;
  Mirror& mirror = found->second;
  mirror.version = 0;
  absl::Status copied = queue_->copy_to_host(fill.memory->data(), *mirror.window, Deadline(kUnderWay));
  if (copied.ok()) {
    mirror.version = fill.publication.version;
  } else {
    (void)queue_->settle(Deadline(kUnderWay));  // the slot may be written or freed next
  }
  return copied;
}

}  // namespace bascule::inline v0
