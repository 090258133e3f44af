// bascule._core: the C++ library for the Python package, which wraps it. Nothing in it is public.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "endpoint_folder.h"
#include "errors.h"
#include "layouts.h"
#include "logs.h"
#include "receiver.h"
#include "report.h"
#include "sender.h"
#include "shards.h"
#include "status.h"
#include "tensors.h"
#include "unlocked.h"
#include <bascule/sender/endpoint_facts.h>
#include <bascule/transport/library_version.h>

NB_MODULE(_core, module) {
  using namespace bascule::python;
  static bool is_loaded = false;
  if (std::exchange(is_loaded, true))
    throw nb::import_error(
        "bascule was imported before, and then removed from sys.modules; expected one import per process. Leave its "
        "modules in sys.modules, or start another process");
  nb::set_leak_warnings(false);  // objects in a user's globals live until the interpreter is gone
  module.attr("version") = nb::make_tuple(BASCULE_VERSION_MAJOR, BASCULE_VERSION_MINOR, BASCULE_VERSION_PATCH);
  bind_errors();
  bind_tensors(module);
  bind_shards(module);
  bind_layouts(module);
  bind_reports(module);
  bind_sender(module);
  bind_receiver(module);
  bind_endpoint_folder(module);
  bind_status(module);
  module.def("keeps_slots_on_gpu", [](const std::string& endpoint) {
    return bascule::keeps_slots_on_gpu(value_of(bascule::Endpoint::parse(endpoint)));
  });
  module.def(
      "endpoint_for_any_engine",
      [](bool gpu, const std::string& folder) {
        return bascule::endpoint_for_any_engine(gpu ? bascule::ComputesOn::kGpu : bascule::ComputesOn::kHost, folder);
      },
      nb::arg("gpu"), nb::arg("folder"));
  module.def(
      "take_log_lines", [] { return LogLines::instance().take(); }, nb::call_guard<Unlocked>(),
      "Blocks until Bascule has logged lines; returns each with its log's number before, and whether it is a warning "
      "behind. After stop_logs(), does not block.");
  module.def("renew_logs", &LogLines::renew);
  module.def("stop_logs", [] { LogLines::instance().stop(); });
  module.def("interpreter_ends", &interpreter_ends,
             "Stops all other threads that are in a call, or enter one: they never return to Python.");
}
