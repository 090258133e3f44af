#include <bascule/schemes/memmap/syncer.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {

Syncer::~Syncer() {
  const std::lock_guard lock(mutex_);
  ++last_;
  changed_.notify_all();
}

std::uint64_t Syncer::copy_behind(ProcessFd fd, std::uint64_t data_offset, std::uint64_t bytes,
                                  const std::atomic<std::uint64_t>& bytes_done) {
  auto file = std::make_shared<File>();
  *file = {.fd = std::move(fd), .data_offset = data_offset, .bytes = bytes, .bytes_done = &bytes_done};
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++last_;
  constexpr std::uint64_t kKept = 8;  // results that wait() may never ask for
  results_.erase(results_.begin(), results_.lower_bound(number - std::min(number, kKept)));
  changed_.notify_all();
  thread_.submit([this, file, number] { run(*file, number); });
  return number;
}

void Syncer::sealed() {
  const std::lock_guard lock(mutex_);
  sealed_ = last_;
  changed_.notify_all();
}

absl::Status Syncer::wait(std::uint64_t number, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline.at(), [&] { return results_.contains(number); }))
    return deadline_exceeded("the version was not on the disk in time");
  return results_.extract(number).mapped();
}

void Syncer::run(const File& file, std::uint64_t number) {
  using std::chrono::milliseconds;
  behind_.begin(file.fd.get());
  std::unique_lock lock(mutex_);
  const auto followed = [&] { return last_ == number && sealed_ < number; };
  std::uint64_t done = 0;
  // A writer only stores its progress, so this thread polls it every millisecond while it grows.
  for (milliseconds pause{1}; followed();) {
    const std::uint64_t before = std::exchange(done, file.bytes_done->load(std::memory_order_acquire));
    lock.unlock();
    if (done > 0) behind_.reached(file.data_offset + done);
    lock.lock();
    pause = done > before ? milliseconds(1) : std::min(2 * pause, milliseconds(16));
    changed_.wait_for(lock, pause, [&] { return !followed(); });
  }
  if (sealed_ < number) return;
  lock.unlock();
  behind_.reached(file.data_offset + file.bytes);
  absl::Status status = behind_.finish(Deadline(absl::InfiniteDuration()));
  lock.lock();
  results_[number] = std::move(status);
  changed_.notify_all();
}

}  // namespace bascule::inline v0::memmap
