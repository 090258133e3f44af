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
  nb::class_<StageSeconds>(module, "StageSeconds", "The duration of a send's stages, in seconds.")
      .def_ro("wait", &StageSeconds::wait, "From the call until a slot was free.")
      .def_ro("pack", &StageSeconds::pack, "Gathering, casting and digesting the tensors.")
      .def_ro("deliver", &StageSeconds::deliver, "The scheme's transfer.")
      .def_ro("prepare", &StageSeconds::prepare, "Until every worker had verified the version.")
      .def_ro("commit", &StageSeconds::commit,
              "From the decision to publish until the last acknowledgment and, with durable=on, the disk.")
      .def_ro("persist", &StageSeconds::persist, "With durable=on, the part of commit until the version was on disk.")
      .def_prop_ro("total", &StageSeconds::total, "The sum of wait, pack, deliver, prepare and commit.")
      .def("__repr__", [](const StageSeconds& seconds) {
        return cat("<StageSeconds ", seconds.total(), ": wait ", seconds.wait, ", pack ", seconds.pack, ", deliver ",
                   seconds.deliver, ", prepare ", seconds.prepare, ", commit ", seconds.commit, ", of which persist ",
                   seconds.persist, ">");
      });
  nb::class_<WorkerReport>(module, "WorkerReport", "One worker's part of a send.")
      .def_ro("worker", &WorkerReport::worker, "The worker's name.")
      .def_prop_ro(
          "state", [](const WorkerReport& report) { return to_string(report.state); },
          "\"serving\", \"catching up\", \"failed\", \"evicted\" or \"missing\".")
      .def_prop_ro(
          "error", [](const WorkerReport& report) { return error_of(report.error); },
          nb::sig("def error(self) -> bascule.errors.BasculeError | None"),
          "A BasculeError if the worker failed, was evicted, or is missing; else None.")
      .def_ro("seconds", &WorkerReport::seconds, "From the decision to publish until the worker's acknowledgment.")
      .def_ro("stall_seconds", &WorkerReport::stall_seconds, "How long its engine was inside commit().")
      .def_prop_ro(
          "bytes_read",
          [](const WorkerReport& report) -> std::optional<std::uint64_t> {
            if (!report.bytes) return std::nullopt;
            return report.bytes->read;
          },
          "How many bytes of the version one pass of the worker reads; None if unknown.")
      .def_prop_ro("verified_share", &WorkerReport::verified_share,
                   "The share of these bytes that the worker verifies, from 0 to 1; None if unknown.")
      .def("__repr__", [](const WorkerReport& report) {
        return "<WorkerReport " + report.worker + ": " + to_string(report.state) +
               (report.error.ok() ? "" : ", " + std::string(message_of(report.error))) + ">";
      });
  nb::class_<UpdateReport>(module, "UpdateReport", "The outcome of an update_weights().")
      .def_ro("version", &UpdateReport::version, "The version's number.")
      .def_prop_ro(
          "error", [](const UpdateReport& report) { return error_of(report.status); },
          nb::sig("def error(self) -> bascule.errors.BasculeError | None"),
          "A BasculeError if no worker flipped to it; else None.")
      .def_ro("workers", &UpdateReport::workers, "A WorkerReport per worker.")
      .def_ro("warnings", &UpdateReport::warnings, "A sentence each.")
      .def("__repr__", [](const UpdateReport& report) {
        return cat("<UpdateReport version ", report.version, ", ", report.workers.size(), " workers",
                   report.status.ok() ? "" : cat(", ", message_of(report.status)), ">");
      });
  nb::class_<SendReport>(module, "SendReport", "The outcome of a send.")
      .def_ro("epoch", &SendReport::epoch, "The sender's epoch, which grows with each new sender at the endpoint.")
      .def_ro("version", &SendReport::version, "The version's number.")
      .def_ro("bytes", &SendReport::bytes, "The size of the tensors, counted once however many workers there are.")
      .def_prop_ro(
          "digest",
          [](const SendReport& report) -> std::optional<std::string> {
            if (!report.digest) return std::nullopt;
            return to_hex(*report.digest);
          },
          "The version's digest in 32 hexadecimal digits; None with digest=off.")
      .def_ro("seconds", &SendReport::seconds, "The duration of each stage.")
      .def_ro("workers", &SendReport::workers,
              "A WorkerReport per worker, in the order they joined; then, if the version is for all, the workers that "
              "left since the last report and have not come back; then the missing ones.")
      .def_ro("expected", &SendReport::expected, "At least so many workers should serve this version.")
      .def_ro("memory", &SendReport::memory, "The kind of memory that the slots use, such as \"memfd, 4 KiB pages\".")
      .def_prop_ro(
          "persist_error", [](const SendReport& report) { return error_of(report.persisted); },
          nb::sig("def persist_error(self) -> bascule.errors.BasculeError | None"),
          "With durable=on, a BasculeError if the version is served but not on disk; else None.")
      .def_ro("updates", &SendReport::updates, "An UpdateReport per update_weights() since the last report.")
      .def_ro("warnings", &SendReport::warnings, "A sentence each.")
      .def_prop_ro("complete", &SendReport::complete,
                   "Whether all of `workers`, and as many as expected, serve this version.")
      .def_prop_ro("why_incomplete", &SendReport::why_incomplete,
                   "The workers that do not serve this version, and why; empty if it is complete.")
      .def("__repr__", [](const SendReport& report) {
        return "<SendReport version " + std::to_string(report.version) + ", " + std::to_string(report.workers.size()) +
               " workers, " + std::to_string(report.bytes) + " bytes, " + std::to_string(report.seconds.total()) +
               " s" + (report.complete() ? "" : ", not complete: " + report.why_incomplete()) + ">";
      });
}

}  // namespace bascule::python
