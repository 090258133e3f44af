// Owners of streams and events, each of which knows its device. Every call, including the destructor, makes that device
// current and then restores the caller's device.
//
// Move-only; a moved-from object is empty, and may only be assigned to or destroyed. One thread at a time. Destruction
// does not wait for enqueued work. Errors of destructors are kept (status.h).
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

// How long to wait for enqueued work if no caller gives a deadline, as in a destructor. This is longer than any of our
// copies or kernels takes once it has begun, even on a busy device, so only a hung device uses up all of it; the memory
// on that device is then abandoned until the process ends. Work that waits for a user's stream may take longer, so its
// owner first waits for that stream, with a deadline of the endpoint (Session::stop, Packer::finish).
inline constexpr absl::Duration kUnderWay = absl::Seconds(10);

// A stream that does not wait for the default stream.
class UniqueStream {
 public:
  enum class Priority { kLow, kHigh, kHighest };
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

  // Blocks, polling, until the device has done all enqueued work. Returns DEADLINE_EXCEEDED if it has not.
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

  absl::Status alive() const;  // returns a sticky error if the device was reset since this event was made
  // Sets the point after all work enqueued so far on `stream`, which must be a stream of this device. Does not block.
  absl::Status record(Stream stream);
  // Makes later work on `stream`, which may be of any device, wait for the point. Does not block the host.
  absl::Status let_wait(Stream stream) const;
  // Whether the device has passed the point; true if none was recorded. Does not block. Both this and wait() return a
  // sticky error if the device was reset since the event was made.
  absl::StatusOr<bool> passed() const;
  // Blocks, polling, until the device has passed the point. Returns DEADLINE_EXCEEDED if it has not.
  absl::Status wait(Deadline deadline) const;
  // Returns the time from `earlier`'s point to this one's. Both events must have been made with kOn, and both points
  // passed.
  absl::StatusOr<absl::Duration> since(const UniqueEvent& earlier) const;

 private:
  absl::StatusOr<bool> query() const;

  CUevent_st* event_ = nullptr;
  DeviceLife life_;
};

}  // namespace bascule::inline v0::cuda
