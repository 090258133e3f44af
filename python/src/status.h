// Binds observe() for Python: the state of an endpoint, seen from outside.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_status(nanobind::module_& module);

}  // namespace bascule::python
