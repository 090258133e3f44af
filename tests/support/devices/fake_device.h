// A device that a machine without one can have: transport/device.h over host memory and queues that a test holds up or
// loses, so that what waits for a device is tested on a CPU, under sanitizers too. It stands in at link time: a program
// that has fake_device.cpp among its own sources has this device, number 0, and no other.
//
// A user's stream runs what it was given in order, on whichever thread gives the word. One that is held up runs nothing
// until it passes; work of Bascule's own that is ordered behind it waits, too. A lost device runs nothing any more, and
// every call fails with the error that is_sticky() knows. Sender's ends are not there: it packs nothing.
#pragma once

#include <functional>
#include <memory>

#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/tensor.h>

namespace bascule::test {

class FakeDevice {
 public:
  static FakeDevice& instance();  // of this process, as devices are

  void renew();  // as it was: not lost, no stream held up, nothing given to any
  void lose();

  Stream make_stream();  // until renew()
  void hold(Stream stream);
  void pass(Stream stream);
  // What Bascule's own streams are given from now on waits likewise.
  void hold_own();
  void pass_own();
  void give(Stream stream, std::function<void()> work);  // the engine's, as a kernel
  // The next record() of a mark fails, and nothing is lost.
  void refuse_mark();
  // Blocks until somebody waits for it, or has given up to, that often since renew(). False: not by the deadline.
  bool wait_for_waits(int times, Deadline deadline);
  bool wait_for_timeouts(int times, Deadline deadline);

  struct State;
  State& state() { return *state_; }

 private:
  FakeDevice();
  std::unique_ptr<State> state_;
};

// `scheme`, whose slots lie on the device to its readers.
Scheme on_fake_device(Scheme scheme);

}  // namespace bascule::test
