// A scheme that injects faults: its slots are memfds, as with shm, and each of its calls has a hook. Each end has its
// own faults. At an endpoint with a host, to which no descriptor can be passed, its offer names the memfds by their
// paths in /proc, and each worker receives a version into its own memory. For version 7, deliver() makes the workers
// receive, sends them "whole 7" once the slot is whole, and is done when each has answered "got 7".
//
//   admit         refuses the worker                 accept        cannot reach the offered memory
//   deliver       fails                              prepare       fails
//   deliver-hang  waits until it is stopped          prepare-hang  waits for its deadline, then fails
//   publish       fails                              receive       fails
//   publish-hang  waits until it is freed
//   corrupt       changes a byte of the sealed slot  misread       this worker reads one byte wrong
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::test {

class FakeFaults {
 public:
  FakeFaults();

  // Makes the next `calls` calls of `hook` go wrong; 0 also frees a call that hangs. Returns false if there is no such
  // hook.
  bool set(std::string_view hook, int calls);
  // Waits until calls of `hook` have gone wrong `times` times in all.
  bool wait_for(std::string_view hook, int times, Deadline deadline) const;

  // For the scheme. Both return true if this call goes wrong; hangs() then returns only when the call is freed, or at
  // the deadline.
  bool strikes(std::string_view hook) const;
  bool hangs(std::string_view hook, Deadline deadline) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // copies share their faults
};

Scheme fake_scheme(const FakeFaults& faults);

inline bool is_fake(std::string_view endpoint) { return endpoint.starts_with("fake:"); }

}  // namespace bascule::test
