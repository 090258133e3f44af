// Binds the folder of endpoints for Python. python/bascule/endpoint_folder.py has the public class.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_endpoint_folder(nanobind::module_& module);

}  // namespace bascule::python
