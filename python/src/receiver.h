// The receiver's end, for Python. python/bascule/receiver.py is its public face.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_receiver(nanobind::module_& module);

}  // namespace bascule::python
