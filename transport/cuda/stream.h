// Owners of streams and events, each with its device, which is made current for every call here and in the destructor,
// and the caller's own device again afterwards.
//
// Move-only; a moved-from one is empty, and may only be assigned to or destroyed. One thread at a time. Destruction
// does not wait for what is enqueued. Errors of destructors are kept (status.h).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/cuda_result.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0::cuda {

using kernels::cuda::DeviceGuard;
using kernels::cuda::DeviceLife;
using kernels::cuda::Stream;

// How long is waited where no caller gives a deadline, as in a destructor: more than any copy or kernel of ours takes
// once it has begun, also on a device that others keep busy. What waits for a stream of the user's may take longer: its
// owner waits for that first, with a deadline of the endpoint (Session::stop, Packer::finish). Only a device that hangs
// uses up all of it; the memory is then given up, as it would be at the end of the process.
inline constexpr absl::Duration kUnderWay = absl::Seconds(10);

// A stream that does not wait for the default one.
class UniqueStream {
 public:
  enum class Priority { kLow, kHigh };
  static absl::StatusOr<UniqueStream> make(int device, Priority priority = Priority::kLow);

  UniqueStream() = default;
  UniqueStream(UniqueStream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), life_(std::move(other.life_)) {}
  UniqueStream& operator=(UniqueStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(life_, other.life_);
    return *this;
  }
  ~UniqueStream();

  Stream get() const { return stream_; }
  int device() const { return life_.device(); }

  // Blocks, polling, until the device is done with all that is enqueued. DEADLINE_EXCEEDED: not yet.
  absl::Status wait(Deadline deadline) const;

 private:
  Stream stream_ = nullptr;
  DeviceLife life_;
};

// A point in a stream's work.
class UniqueEvent {
 public:
  enum class Timing { kOff, kOn };
  static absl::StatusOr<UniqueEvent> make(int device, Timing timing = Timing::kOff);

  UniqueEvent() = default;
  UniqueEvent(UniqueEvent&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), life_(std::move(other.life_)) {}
  UniqueEvent& operator=(UniqueEvent&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(life_, other.life_);
    return *this;
  }
  ~UniqueEvent();

  CUevent_st* get() const { return event_; }
  int device() const { return life_.device(); }

  absl::Status alive() const;  // a sticky error where the device was reset since this was made
  // The point behind all that is enqueued on `stream`, a stream of this device. Does not block.
  absl::Status record(Stream stream);
  // What is enqueued on `stream`, of any device, from now on begins behind the point. Does not block the host.
  absl::Status let_wait(Stream stream) const;
  // Whether the device has passed the point; true where none was recorded. Does not block. A sticky error where the
  // device was reset since the event was made, as wait().
  absl::StatusOr<bool> passed() const;
  // Blocks, polling, until it has. DEADLINE_EXCEEDED: not yet.
  absl::Status wait(Deadline deadline) const;
  // From `earlier`'s point to this one's; both with timing, both passed.
  absl::StatusOr<absl::Duration> since(const UniqueEvent& earlier) const;

 private:
  absl::StatusOr<bool> query() const;

  CUevent_st* event_ = nullptr;
  DeviceLife life_;
};

}  // namespace bascule::inline v0::cuda
