// A device for machines that have none: it implements transport/device.h over host memory and queues, which a test can
// hold up or lose. With it, code that waits for a device is tested on a CPU, even under sanitizers. It is chosen at
// link time: a program that has fake_device.cpp among its own sources has this device, number 0, and no other.
//
// A user's stream runs its work in order, on the thread whose call makes the work runnable. After hold() a stream runs
// nothing until pass(), and Bascule's work that is ordered after that stream also waits. A lost device no longer runs
// anything, and every call fails with an error that is_sticky() recognises. The fake has no functions for senders: it
// packs nothing.
#pragma once

#include <functional>
#include <memory>

#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/tensor.h>

namespace bascule::test {

class FakeDevice {
 public:
  static FakeDevice& instance();  // one per process, as devices are

  void renew();  // back to the start: not lost, no stream held, no work on any stream
  void lose();

  Stream make_stream();  // valid until renew()
  void hold(Stream stream);
  void pass(Stream stream);
  // hold() and pass() for all of Bascule's own streams.
  void hold_own();
  void pass_own();
  void give(Stream stream, std::function<void()> work);  // work of the engine's, such as a kernel
  // One byte of each of the next `times` copies from host memory arrives wrong.
  void spoil_copies(int times);
  // The next record() of a mark fails, but the device is not lost.
  void refuse_mark();
  // Blocks until `times` waits for the device have begun (or timed out) since renew(). Returns false if that has not
  // happened by the deadline.
  bool wait_for_waits(int times, Deadline deadline);
  bool wait_for_timeouts(int times, Deadline deadline);

  struct State;
  State& state() { return *state_; }

 private:
  FakeDevice();
  std::unique_ptr<State> state_;
};

// Returns a copy of `scheme` whose readers see its slots on the fake device.
Scheme on_fake_device(Scheme scheme);

}  // namespace bascule::test
