// Binds the receiver for Python. python/bascule/receiver.py has the public class.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_receiver(nanobind::module_& module);

}  // namespace bascule::python
