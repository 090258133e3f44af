// Releases the GIL while a call waits, even while the interpreter ends.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

// After this call, no other thread returns to Python: an ending interpreter ends threads that take the GIL by an
// exception, which must not leave a destructor. The threads sleep until the process is gone.
void interpreter_ends();
void sleep_if_interpreter_ends();
bool interpreter_ended();  // any thread

class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    sleep_if_interpreter_ends();
    PyEval_RestoreThread(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace bascule::python
