#include "status.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "unlocked.h"
#include <bascule/kernels/digest.h>
#include <bascule/receiver/status.h>

namespace bascule::python {
namespace {

std::optional<std::string> hex_of(const std::optional<Digest>& digest) {
  if (!digest) return std::nullopt;
  return to_hex(*digest);
}

std::string text_of(const ObservedSlot& slot) { return std::string(to_string(slot.check)); }

Observation observe_now(const std::string& target) {
  const Unlocked unlocked;
  return value_of(observe({.target = target}));
}

}  // namespace

void bind_status(nb::module_& module) {
  nb::class_<WorkerStatus>(module, "WorkerStatus", "One worker, as its sender sees it.")
      .def_ro("worker", &WorkerStatus::worker)
      .def_ro("pid", &WorkerStatus::pid)
      .def_ro("host", &WorkerStatus::host)
      .def_ro("group", &WorkerStatus::group, "Empty: none.")
      .def_ro("rank", &WorkerStatus::rank)
      .def_ro("state", &WorkerStatus::state,
              "\"waiting\", \"catching up\", \"serving\", \"left out\", \"gone\" or \"poisoned\".")
      .def_ro("path", &WorkerStatus::path, "How versions come to it; empty: as its scheme always does.")
      .def_ro("serving", &WorkerStatus::serving, "By its own word; 0: no version of this sender's.")
      .def_ro("why", &WorkerStatus::why, "It is poisoned.");
  nb::class_<ObservedSlot>(module, "ObservedSlot", "One slot, and whether it holds what the sender says.")
      .def_prop_ro("index", [](const ObservedSlot& slot) { return slot.says.index; })
      .def_prop_ro("state", [](const ObservedSlot& slot) { return slot.says.state; })
      .def_prop_ro("version", [](const ObservedSlot& slot) { return slot.says.version; })
      .def_prop_ro("digest", [](const ObservedSlot& slot) { return hex_of(slot.says.digest); })
      .def_prop_ro("holders", [](const ObservedSlot& slot) { return slot.says.holders; })
      .def_prop_ro("check", &text_of, "\"verified\", or why it is not.");
  nb::class_<Observation>(module, "Observation", "What an endpoint says of itself, and what its slots hold.")
      .def_ro("place", &Observation::place)
      .def_ro("sender", &Observation::sender, "Whether a sender answered; else versions were found that it left.")
      .def_prop_ro("scheme", [](const Observation& seen) { return seen.status.scheme; })
      .def_prop_ro("epoch", [](const Observation& seen) { return seen.status.epoch; })
      .def_prop_ro("version", [](const Observation& seen) { return seen.status.version; })
      .def_prop_ro("workers", [](const Observation& seen) { return seen.status.workers; })
      .def_ro("slots", &Observation::slots)
      .def_prop_ro("wrong", &Observation::wrong, "A sentence each; empty: all is right.");
  module.def("observe", &observe_now, nb::arg("target"));
}

}  // namespace bascule::python
