#include "report.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "errors.h"
#include <bascule/sender/report.h>
#include <bascule/transport/status.h>

namespace bascule::python {

void bind_reports(nb::module_& module) {
  nb::class_<StageSeconds>(module, "StageSeconds", "Where the time of a send went, in seconds.")
      .def_ro("wait", &StageSeconds::wait, "From the call until a slot was free.")
      .def_ro("pack", &StageSeconds::pack, "Gather, cast, digest.")
      .def_ro("deliver", &StageSeconds::deliver, "The scheme's transfer.")
      .def_ro("prepare", &StageSeconds::prepare, "Until every worker had verified the version.")
      .def_ro("commit", &StageSeconds::commit, "From the decision until the last acknowledgment.")
      .def_ro("persist", &StageSeconds::persist, "With durable=on, a part of commit: until the disk had the version.")
      .def_prop_ro("total", &StageSeconds::total);
  nb::class_<WorkerReport>(module, "WorkerReport", "One worker's part of a send.")
      .def_ro("worker", &WorkerReport::worker)
      .def_prop_ro(
          "state", [](const WorkerReport& report) { return to_string(report.state); },
          "\"serving\", \"catching up\", \"failed\" or \"evicted\".")
      .def_prop_ro(
          "error", [](const WorkerReport& report) { return error_of(report.error); },
          nb::sig("def error(self) -> bascule.errors.BasculeError | None"),
          "A BasculeError where the worker failed or was evicted; else None.")
      .def_ro("seconds", &WorkerReport::seconds, "From the decision to its acknowledgment.")
      .def_ro("stall_seconds", &WorkerReport::stall_seconds, "That its engine spent inside commit().")
      .def("__repr__", [](const WorkerReport& report) {
        return "<WorkerReport " + report.worker + ": " + to_string(report.state) +
               (report.error.ok() ? "" : ", " + std::string(message_of(report.error))) + ">";
      });
  nb::class_<UpdateReport>(module, "UpdateReport", "The outcome of an update_weights().")
      .def_ro("version", &UpdateReport::version)
      .def_prop_ro(
          "error", [](const UpdateReport& report) { return error_of(report.status); },
          nb::sig("def error(self) -> bascule.errors.BasculeError | None"),
          "A BasculeError where no worker flipped to it; else None.")
      .def_ro("workers", &UpdateReport::workers)
      .def_ro("warnings", &UpdateReport::warnings);
  nb::class_<SendReport>(module, "SendReport", "The outcome of a send.")
      .def_ro("epoch", &SendReport::epoch, "Of the sender: one more with each that listens at an endpoint.")
      .def_ro("version", &SendReport::version)
      .def_ro("bytes", &SendReport::bytes, "Payload, counted once.")
      .def_prop_ro(
          "digest",
          [](const SendReport& report) -> std::optional<std::string> {
            if (!report.digest) return std::nullopt;
            return to_hex(*report.digest);
          },
          "32 hexadecimal digits; None with digest=off.")
      .def_ro("seconds", &SendReport::seconds)
      .def_ro("workers", &SendReport::workers, "In the order they joined.")
      .def_ro("memory", &SendReport::memory, "What the slots are made of.")
      .def_prop_ro(
          "persist_error", [](const SendReport& report) { return error_of(report.persisted); },
          nb::sig("def persist_error(self) -> bascule.errors.BasculeError | None"),
          "With durable=on a BasculeError where the version is served but not on the disk; else None.")
      .def_ro("updates", &SendReport::updates, "Outcomes of update_weights() since the last report.")
      .def_ro("warnings", &SendReport::warnings)
      .def_prop_ro("complete", &SendReport::complete, "Whether all workers serve this version.")
      .def("__repr__", [](const SendReport& report) {
        return "<SendReport version " + std::to_string(report.version) + ", " + std::to_string(report.workers.size()) +
               " workers, " + std::to_string(report.bytes) + " bytes, " + std::to_string(report.seconds.total()) +
               " s" + (report.complete() ? "" : ", not complete") + ">";
      });
}

}  // namespace bascule::python
