// The interface for schemes that move the bytes themselves, with both ends taking part. The core tells both ends when
// to move a version, and carries messages between them.
//
//   sender                                               receiver
//   open(line)                                           open(line)            attached to a sender
//   deliver(order, done)  every worker is ready
//     line.deliver(worker, version, bytes) ────────────▶ receive(publication, bytes, deadline)
//     line.say(worker, bytes) ◀───────── any time ─────▶ line.say(bytes)
//   heard(worker, bytes)                                 heard(bytes)
//   done(status)          reading has ended              prepare(publication)  of scheme.h: where it lies now
//   stop(number)          delivery no longer needed
//   close()               the sender ends                close()               the connection is lost, or ends
//
// On a Unix socket, messages of say() can carry descriptors; over TCP they cannot.
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

// The sender's end uses this to reach workers. Any thread; calls return at once. Messages to a worker that is gone are
// dropped.
class WorkerLine {
 public:
  virtual ~WorkerLine() = default;
  // Makes the core call the worker's receive(), once the worker has got `prepare` for that version.
  virtual void deliver(WorkerId worker, Version version, std::string bytes) = 0;
  virtual void say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors = {}) = 0;
  virtual void give_up(WorkerId worker, absl::Status why) = 0;  // evicts the worker; remove() follows
  virtual void log(std::string line) = 0;                       // writes a line for a person to read
  virtual void post(std::function<void()> work) = 0;            // runs on the I/O thread; never after close()
};

// A version to move.
struct DeliveryOrder {
  std::uint64_t number = 0;                                // this delivery's number; a sender never reuses one
  Publication publication;                                 // without a digest if the slot is still being written
  std::vector<WorkerId> workers;                           // each has reported that its back slot is free
  const SlotMemory* memory = nullptr;                      // valid until unmake_slot()
  const std::atomic<std::uint64_t>* bytes_done = nullptr;  // length of the written prefix; acquire
};

// The sender's end. I/O thread; every call returns soon.
class Delivery {
 public:
  using Done = std::function<void(absl::Status)>;  // any thread, once, possibly from within the call

  virtual ~Delivery() = default;
  // Called once, before the first worker joins. `line` is valid until close().
  virtual void open(WorkerLine& line) = 0;
  // If true, deliver() is called as soon as all workers are ready, even if the slot is still being written; if false,
  // only once the slot is whole.
  virtual bool starts_while_written() const { return false; }
  // Starts to move a version's bytes to its workers, and calls `done` when the delivery has ended. Several deliveries
  // may be under way at once: one of the version being sent, others for workers that catch up. A worker that is removed
  // meanwhile needs nothing further. An error passed to `done` aborts the version for all its workers;
  // FAILED_PRECONDITION means that this end will never deliver again. The core does not rewrite the slot before `done`,
  // even if the version is aborted.
  virtual void deliver(DeliveryOrder order, Done done) = 0;
  // The version was aborted or all its workers are lost, so delivery `number` should end soon. If its slot is not whole
  // yet, it will stay incomplete.
  virtual void stop(std::uint64_t number) = 0;
  virtual void heard(WorkerId, std::string bytes, std::vector<UniqueFd> descriptors) = 0;
  // The last call: after it returns, the scheme calls neither `line` nor any `done`. May block, for a bounded time.
  // Public thread.
  virtual void close() = 0;
};

// The receiver's end uses this to reach the sender. Any thread; calls return at once, and do nothing once the
// connection is lost.
class SenderLine {
 public:
  virtual ~SenderLine() = default;
  virtual void say(std::string bytes, std::vector<ProcessFd> descriptors = {}) = 0;
};

// The receiver's end. I/O thread, except receive(); all other calls return soon. The same object is also a
// ReceiverTransport, whose functions the prepare thread may call meanwhile.
class Reception {
 public:
  virtual ~Reception() = default;
  virtual void open(std::shared_ptr<SenderLine> line) = 0;  // after the first accept(), and again after each close()
  virtual void heard(std::string bytes, std::vector<UniqueFd> descriptors) = 0;
  // Blocks until the version's bytes have arrived or cannot arrive any more; returns soon after close(). If it returns
  // an error, the worker reports `failed`, except for CANCELLED, which means that the sender's end gave the version up.
  // prepare() follows unless the version is aborted; if it is, the next receive() may reuse the memory. Called on a
  // separate thread, one version at a time.
  virtual absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) = 0;
  virtual void close() = 0;
};

}  // namespace bascule::inline v0
