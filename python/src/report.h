// Binds a send's reports for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_reports(nanobind::module_& module);

}  // namespace bascule::python
