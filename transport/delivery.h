// What a scheme adds whose bytes move by themselves, while both ends take part: a moment to move them, and
// messages that its two ends send each other.
//
//   sender                                               receiver
//   open(line)                                           open(line)            attached to a sender
//   deliver(order, done)  every worker is ready
//     line.deliver(worker, version, bytes) ────────────▶ receive(publication, bytes, deadline)
//     line.say(worker, bytes) ◀───────── any time ─────▶ line.say(bytes)
//   heard(worker, bytes)                                 heard(bytes)
//   done(status)          no byte is read any more       prepare(publication)  of scheme.h: where it lies now
//   stop(number)          it is wanted no more
//   close()               the sender ends                close()               the connection is lost, or ends
//
// On a Unix socket descriptors travel with such messages; over TCP they do not.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

// From the sender's end to workers. Any thread; returns at once. A worker that is gone hears nothing.
class WorkerLine {
 public:
  virtual ~WorkerLine() = default;
  // Has the worker's end receive(), behind its `prepare` of that version.
  virtual void deliver(WorkerId worker, Version version, std::string bytes) = 0;
  virtual void say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors = {}) = 0;
  virtual void give_up(WorkerId worker, absl::Status why) = 0;  // evicts it; remove() follows
  virtual void log(std::string line) = 0;                       // for a person
  virtual void post(std::function<void()> work) = 0;            // runs on the I/O thread; not at all behind close()
};

// A version that is to be moved.
struct DeliveryOrder {
  std::uint64_t number = 0;                                // of this delivery; never used again by a sender
  Publication publication;                                 // without a digest where the slot is still written
  std::vector<WorkerId> workers;                           // each has said that its back slot is free
  const SlotMemory* memory = nullptr;                      // lives until unmake_slot()
  const std::atomic<std::uint64_t>* bytes_done = nullptr;  // a prefix of the slot that is written; acquire
};

// The sender's end. I/O thread; every call returns soon.
class Delivery {
 public:
  using Done = std::function<void(absl::Status)>;  // any thread, once, also from within the call

  virtual ~Delivery() = default;
  // Once, before the first worker. `line` lives until close().
  virtual void open(WorkerLine& line) = 0;
  // Whether deliver() comes as soon as all workers are ready, and the slot may still be written then. Else it is whole.
  virtual bool starts_while_written() const { return false; }
  // Several may be under way at once: of the version that is sent, and of those that other workers catch up with. A
  // worker that is removed meanwhile needs nothing any more. An error aborts the version for all of them;
  // FAILED_PRECONDITION: nothing will ever be delivered by this end again. The slot is not written before `done`,
  // whatever becomes of the version.
  virtual void deliver(DeliveryOrder order, Done done) = 0;
  // The version was aborted, or all of the workers are lost: the delivery is wanted no more, and ends soon. If the slot
  // is not whole yet, no more of it will be written.
  virtual void stop(std::uint64_t number) = 0;
  virtual void heard(WorkerId, std::string bytes, std::vector<UniqueFd> descriptors) = 0;
  // The last call. Neither `line` nor a `done` is called once it has returned. May block, for a bounded time. Public
  // thread.
  virtual void close() = 0;
};

// From a receiver's end to the sender. Any thread; returns at once. Without effect once the connection is lost.
class SenderLine {
 public:
  virtual ~SenderLine() = default;
  virtual void say(std::string bytes, std::vector<ProcessFd> descriptors = {}) = 0;
};

// The receiver's end. I/O thread, but receive(); every other call returns soon. The same object is a ReceiverTransport,
// whose calls come from the prepare thread meanwhile.
class Reception {
 public:
  virtual ~Reception() = default;
  virtual void open(std::shared_ptr<SenderLine> line) = 0;  // behind the first accept(); again after each close()
  virtual void heard(std::string bytes, std::vector<UniqueFd> descriptors) = 0;
  // Blocks until the bytes of the version have come, or will not come; soon after close(). An error: the worker says
  // that it failed; but CANCELLED: the sender's end gave it up. Its prepare() follows, unless the version is aborted:
  // then what came is nobody's, and the next receive() may use its place. A thread of its own, one version at a time.
  virtual absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) = 0;
  virtual void close() = 0;
};

}  // namespace bascule::inline v0
