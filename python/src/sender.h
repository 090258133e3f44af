// Binds the sender for Python. python/bascule/sender.py has the public class.
#pragma once

#include <nanobind/nanobind.h>

namespace bascule::python {

void bind_sender(nanobind::module_& module);

}  // namespace bascule::python
