// Slots in memfds, and queues that copy them on a CPU, which a test can hold up or make fail.
#pragma once

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "support/schemes/host_relay.h"
#include "support/status.h"
#include "support/timing.h"
#include <bascule/schemes/auto/mirrors.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule::inline v0 {

inline constexpr std::uint64_t kBytes = 10'000;

inline auto open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// A slot filled with one value.
struct TrainersSlot {
  explicit TrainersSlot(std::uint32_t index) : id{.epoch = 7, .index = index}, memory(*make_memfd("slot", kBytes)) {}
  void begin() { bytes_done = 0; }
  void write(int value) {
    std::memset(memory.writable().data(), value, kBytes);
    bytes_done = kBytes;
  }
  OfferedSlot offered() { return {.id = id, .memory = &memory, .bytes_done = &bytes_done}; }

  const SlotId id;
  SlotMemory memory;
  std::atomic<std::uint64_t> bytes_done{0};
};

// The first and last byte of the memory that a worker was shown.
inline std::pair<int, int> ends_of(int descriptor) {
  const absl::StatusOr<Mapping> mapping = Mapping::map(descriptor, kBytes, Access::kReadOnly);
  EXPECT_THAT(mapping, test::IsOk());
  if (!mapping.ok()) return {-1, -1};
  return {static_cast<int>(mapping->bytes().front()), static_cast<int>(mapping->bytes().back())};
}
inline std::pair<int, int> both(int value) { return {value, value}; }

// A door at which threads wait until it is opened, or until a limit.
class Gate {
 public:
  absl::Status pass() {
    reached_ = true;
    if (opened_.wait_for(absl::ToChronoNanoseconds(test::patience())) != std::future_status::ready)
      return absl::DeadlineExceededError("the gate stays shut");
    return absl::OkStatus();
  }
  void open() { open_.set_value(); }
  bool reached() const { return reached_; }

 private:
  std::atomic<bool> reached_ = false;
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

template <typename Value>
Value get_soon(std::future<Value>& future) {
  if (future.wait_for(absl::ToChronoNanoseconds(test::patience())) == std::future_status::ready) return future.get();
  return absl::DeadlineExceededError("no answer came");
}

}  // namespace bascule::inline v0
