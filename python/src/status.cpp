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
#include <bascule/transport/status.h>

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
      .def_ro("worker", &WorkerStatus::worker, "The worker's name.")
      .def_ro("pid", &WorkerStatus::pid, "Its process id.")
      .def_ro("host", &WorkerStatus::host, "The name of its host.")
      .def_ro("group", &WorkerStatus::group, "The name of its group; empty: none.")
      .def_ro("rank", &WorkerStatus::rank, "Its number in the group.")
      .def_ro("state", &WorkerStatus::state,
              "\"waiting\", \"catching up\", \"serving\", \"left out\", \"gone\" or \"poisoned\".")
      .def_ro("path", &WorkerStatus::path, "How versions reach it; empty: its scheme's usual path.")
      .def_ro("serving", &WorkerStatus::serving, "The version that it reports; 0: none of this sender's versions.")
      .def_ro("why", &WorkerStatus::why,
              "Why it is poisoned, or which processes a dead worker left running; else empty.")
      .def("__repr__", [](const WorkerStatus& worker) {
        return cat("<WorkerStatus ", worker.worker, ": ", worker.state, ", version ", worker.serving,
                   worker.why.empty() ? "" : cat(", ", worker.why), ">");
      });
  nb::class_<RankStatus>(module, "RankStatus", "One process of a sharded trainer, as rank 0 sees it.")
      .def_ro("rank", &RankStatus::rank, "Its number.")
      .def_ro("pid", &RankStatus::pid, "Its process id; 0: not known yet.")
      .def_ro("state", &RankStatus::state, "\"awaited\", \"joined\", \"gone\" or \"lost\".")
      .def_ro("gone_seconds", &RankStatus::gone_seconds, "How long ago its connection ended, or None.")
      .def_ro("bytes", &RankStatus::bytes,
              "How many bytes of its shards it sends, in the trainer's types; 0 until all ranks have registered.")
      .def("__repr__", [](const RankStatus& rank) {
        return cat("<RankStatus ", rank.rank, ": ", rank.state, ", sends ", rank.bytes, " bytes>");
      });
  nb::class_<ObservedSlot>(module, "ObservedSlot",
                           "One slot, and whether it holds the version that the sender reports.")
      .def_prop_ro(
          "index", [](const ObservedSlot& slot) { return slot.says.index; }, "Its number.")
      .def_prop_ro(
          "state", [](const ObservedSlot& slot) { return slot.says.state; }, "Its state, as the sender reports it.")
      .def_prop_ro(
          "version", [](const ObservedSlot& slot) { return slot.says.version; }, "The version that it holds.")
      .def_prop_ro(
          "digest", [](const ObservedSlot& slot) { return hex_of(slot.says.digest); }, "In hexadecimal, or None.")
      .def_prop_ro(
          "holders", [](const ObservedSlot& slot) { return slot.says.holders; }, "Names of its lease holders.")
      .def_prop_ro("check", &text_of, "\"verified\", or why it is not verified.")
      .def("__repr__", [](const ObservedSlot& slot) {
        return cat("<ObservedSlot ", slot.says.index, ": ", slot.says.state, ", version ", slot.says.version, ", ",
                   text_of(slot), ">");
      });
  nb::class_<Observation>(module, "Observation",
                          "An endpoint's state: what its sender reports, and what its slots hold.")
      .def_ro("place", &Observation::place, "The endpoint's folder or address.")
      .def_ro("sender", &Observation::sender, "Whether a sender answered; if not, it left the versions that are shown.")
      .def_prop_ro(
          "scheme", [](const Observation& seen) { return seen.status.scheme; }, "The scheme's name.")
      .def_prop_ro(
          "epoch", [](const Observation& seen) { return seen.status.epoch; }, "The sender's epoch.")
      .def_prop_ro(
          "version", [](const Observation& seen) { return seen.status.version; }, "The newest version.")
      .def_prop_ro(
          "workers", [](const Observation& seen) { return seen.status.workers; }, "A WorkerStatus per worker.")
      .def_prop_ro(
          "ranks", [](const Observation& seen) { return seen.status.ranks; },
          "A RankStatus per process of a sharded trainer; else empty.")
      .def_ro("slots", &Observation::slots, "An ObservedSlot per slot.")
      .def_prop_ro("wrong", &Observation::wrong, "Problems, a sentence each; empty if there are none.")
      .def("__repr__", [](const Observation& seen) {
        return cat("<Observation of ", seen.place, ": ", seen.sender ? "a sender" : "no sender", ", version ",
                   seen.status.version, ", ", seen.status.workers.size(), " workers",
                   seen.wrong().empty() ? "" : cat(", ", seen.wrong().size(), " problems"), ">");
      });
  module.def("observe", &observe_now, nb::arg("target"));
}

}  // namespace bascule::python
