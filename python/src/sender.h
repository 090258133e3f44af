// The sender's end, for Python. python/bascule/sender.py is its public face.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_sender(nanobind::module_& module);

}  // namespace bascule::python
