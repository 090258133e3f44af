// Looking at an endpoint from outside, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_status(nanobind::module_& module);

}  // namespace bascule::python
