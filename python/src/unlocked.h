// The GIL, given away for as long as a call waits; also beside an interpreter that ends.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

// From here on threads other than this one do not come back to Python: the interpreter ends them where they take the
// GIL, by an exception that no destructor may let pass. They sleep until the process is gone.
void interpreter_ends();
void sleep_if_interpreter_ends();

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
