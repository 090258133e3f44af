#include "receiver.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "logs.h"
#include "tensors.h"
#include "unlocked.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/status.h>

namespace bascule::python {
namespace {

// How long a call waits before it looks for signals.
constexpr absl::Duration kInterruptible = absl::Milliseconds(50);

using PartArguments = std::tuple<std::string, std::vector<std::tuple<int, std::int64_t, std::int64_t>>>;

class Targets {
 public:
  void add(std::string name, const std::string& dtype, std::vector<std::int64_t> shape, std::uintptr_t address,
           int device, std::vector<PartArguments> parts, int join_dim) {
    TargetTensor target{.name = std::move(name), .dtype = dtype_of(dtype), .shape = std::move(shape)};
    target.data = reinterpret_cast<std::byte*>(address);
    target.device = device;
    target.join_dim = join_dim;
    for (auto& [tensor, slices] : parts) {
      Part part{.tensor = std::move(tensor)};
      for (const auto& [dim, begin, end] : slices) part.slices.push_back({.dim = dim, .begin = begin, .end = end});
      target.parts.push_back(std::move(part));
    }
    targets_.push_back(std::move(target));
  }
  std::vector<TargetTensor> targets() const { return targets_; }

 private:
  std::vector<TargetTensor> targets_;
};

// Keeps tensors' memory alive: a slot's memory, which outlives slot and receiver, or else the receiver's own tensors.
struct Memory {
  std::shared_ptr<const void> memory;
  nb::object receiver;  // none if there is `memory`
};

// The function of _accepting.py that decide_by() was given. It is never released, since a thread may still call it.
PyObject* decides = nullptr;

// Asks Python whether the receiver with this number takes a layout. On a thread of the receiver, which may outlive it.
absl::Status ask(int number, const Layout& layout) {
  if (interpreter_ended()) return absl::CancelledError("this process ends");
  const nb::gil_scoped_acquire acquire;
  try {
    nb::list tensors;
    const auto add = [&](const std::string& name, const TensorSpec& spec) {
      tensors.append(nb::make_tuple(name, std::string(name_of(spec.dtype)), spec.shape));
    };
    for (const Placement& tensor : layout.tensors()) add(tensor.spec.name, tensor.spec);
    for (const Alias& alias : layout.aliases()) add(alias.name, layout.tensors()[alias.tensor].spec);
    nb::borrow(decides)(number, tensors, layout.description());
  } catch (const nb::python_error& refused) {
    return status_of(refused.value());
  }
  return absl::OkStatus();
}

class ReceiverHandle {
 public:
  ReceiverHandle(std::string endpoint, std::string worker, std::string group, std::uint32_t rank, std::uint32_t ranks,
                 int device, std::uintptr_t stream, int log, int accept) {
    ReceiverOptions options{.endpoint = std::move(endpoint), .worker = std::move(worker)};
    options.group = std::move(group);
    options.rank = rank;
    options.ranks = ranks;
    options.device = device;
    options.stream = reinterpret_cast<Stream>(stream);
    options.log = LogLines::sink(log, /*is_warning=*/false);
    options.warn = LogLines::sink(log, /*is_warning=*/true);
    options.interrupted = [this] { return is_interrupted(); };
    if (accept != 0) options.accept = [accept](const Layout& layout) { return ask(accept, layout); };
    const Unlocked unlocked;
    receiver_.emplace(value_of(Receiver::connect(std::move(options))));
  }
  ~ReceiverHandle() {
    const Unlocked unlocked;
    receiver_.reset();
  }
  // Interrupts other threads' calls, and leaves the endpoint when they have ended. If it lent its own tensors, it
  // leaves when the last of them is gone.
  void close() {
    closing_ = true;
    if (calls_ == 0 && !lends_own_) leave();
  }
  void abandon() {  // in a forked child
    if (receiver_) new Receiver(*std::move(receiver_));
    receiver_.reset();
  }

  // `memory` keeps the targets' memory alive as long as this handle, which tensors in that memory keep alive.
  void register_model(const Targets& targets, const std::string& apply, bool partial, nb::object memory) {
    targets_memory_ = std::move(memory);
    ModelOptions options{.partial = partial};
    if (apply == "commit") options.apply = Apply::kCommit;
    if (apply == "background") options.apply = Apply::kBackground;
    const Call call(*this);
    const Unlocked unlocked;
    check(receiver().register_model(targets.targets(), options));
  }
  void join() { receiver().join(); }

  // Waits until `least` or a newer version is served or ready (0: any version). A timeout of 0 only checks.
  void wait_ready(Version least, std::optional<double> timeout) {
    const Deadline deadline(timeout_of(timeout));
    const Call call(*this);
    while (true) {
      absl::Status ready;
      {
        const Unlocked unlocked;
        ready = receiver().wait_ready(least, std::min(kInterruptible, std::max(deadline.left(), absl::ZeroDuration())));
      }
      if (!absl::IsDeadlineExceeded(ready) || deadline.passed()) return check(std::move(ready));
      if (closing_) throw Failure{absl::CancelledError("this receiver was closed")};
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
  Flip commit(std::optional<Version> version) {
    return flip_by([&] { return version ? receiver().commit(*version) : receiver().commit(); });
  }
  Flip take(std::optional<Version> version) {
    return flip_by([&] { return version ? receiver().take(*version) : receiver().take(); });
  }
  // The last flip that changed something, even if the call in which it happened then failed.
  std::optional<Flip> flip() const { return flip_; }
  // What commit() returns if there is nothing to flip to.
  Flip unchanged() const {
    Flip flip = flip_.value_or(Flip{});
    flip.changed = false;
    return flip;
  }
  void finish(nb::handle error) {
    const absl::Status loaded = error.is_none() ? absl::OkStatus() : status_of(error);
    const Call call(*this);
    const Unlocked unlocked;
    receiver().finish(loaded);
  }
  // Returns, by name, objects with __dlpack__ over the served slot's memory, which must not be written.
  nb::dict weights(const Flip& flip) {
    nb::dict tensors;
    Memory memory{.memory = receiver().keep(flip.slot), .receiver = {}};
    if (memory.memory == nullptr) memory.receiver = nb::find(this);
    lends_own_ |= memory.memory == nullptr;
    const nb::object owner = nb::cast(std::move(memory));
    for (const TensorView& tensor : receiver().weights(flip.slot).tensors())
      tensors[nb::str(tensor.name.data(), tensor.name.size())] = array_over(tensor, owner);
    return tensors;
  }
  std::string description() { return receiver().description(); }
  int fileno() { return value_of(receiver().pending_fd()); }
  ReceiverStatus status() { return receiver().status(); }

 private:
  Receiver& receiver() {
    if (!receiver_) throw Failure{failed_precondition("this receiver is closed")};
    return *receiver_;
  }

  // Runs without the GIL. A signal's exception takes precedence over the interrupted call's error.
  template <typename Flips>
  Flip flip_by(Flips flips) {
    const Call call(*this);
    const Flip flip = [&] {
      const Unlocked unlocked;
      return flips();
    }();
    if (flip.changed) flip_ = flip;
    if (PyErr_Occurred()) throw nb::python_error();
    if (closing_ && !flip.changed) throw Failure{absl::CancelledError("this receiver was closed")};
    return flip;
  }
  // Called while a follower waits for its version.
  bool is_interrupted() {
    if (closing_) return true;
    sleep_if_interpreter_ends();
    const nb::gil_scoped_acquire acquire;
    return PyErr_Occurred() || PyErr_CheckSignals() != 0;
  }

  std::optional<Receiver> receiver_;
  // A call in progress. Construction and destruction need the GIL.
  class Call {
   public:
    explicit Call(ReceiverHandle& handle) : handle_(handle) { ++handle_.calls_; }
    ~Call() {
      if (--handle_.calls_ == 0 && handle_.closing_ && !handle_.lends_own_) handle_.leave();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    ReceiverHandle& handle_;
  };
  void leave() {
    std::optional<Receiver> left = std::exchange(receiver_, std::nullopt);
    const Unlocked unlocked;
    left.reset();
  }

  nb::object targets_memory_;
  std::optional<Flip> flip_;
  int calls_ = 0;
  bool lends_own_ = false;  // weights() returned tensors of the second set
  std::atomic<bool> closing_ = false;
};

}  // namespace

void bind_receiver(nb::module_& module) {
  nb::class_<Flip>(module, "Flip", "What commit() did.")
      .def_ro("changed", &Flip::changed, "Whether the call changed the version that is served.")
      .def_ro("epoch", &Flip::epoch, "The epoch of the sender that the version came from.")
      .def_ro("version", &Flip::version, "The version that is served now; 0 before the first, and after a failed copy.")
      .def_ro("poisoned", &Flip::poisoned,
              "Whether the weights must not be used until the next flip; status().error says why.")
      .def_prop_ro(
          "slot", [](const Flip& flip) { return std::tuple(flip.slot.epoch, flip.slot.index); },
          "The epoch and index of the slot that holds the weights.")
      .def("__repr__", [](const Flip& flip) {
        return "<Flip version " + std::to_string(flip.version) + (flip.changed ? ", changed" : ", as before") +
               (flip.poisoned ? ", poisoned" : "") + ">";
      });
  nb::class_<ReceiverStatus>(module, "ReceiverStatus", "A snapshot of a receiver.")
      .def_prop_ro(
          "state", [](const ReceiverStatus& status) { return to_string(status.state); },
          "\"joining\", \"pending\", \"serving\", \"poisoned\" or \"loading\".")
      .def_ro("attached", &ReceiverStatus::attached,
              "Whether a sender has admitted this worker, which happens at its first send or later.")
      .def_ro("epoch", &ReceiverStatus::epoch, "The epoch of the sender that the version came from.")
      .def_ro("version", &ReceiverStatus::version, "The version that is served, or that the engine loads.")
      .def_ro("path", &ReceiverStatus::path, "How versions reach this worker; empty: its scheme's usual path.")
      .def_prop_ro(
          "error", [](const ReceiverStatus& status) { return error_of(status.error); },
          nb::sig("def error(self) -> bascule.errors.BasculeError | None"),
          "A BasculeError that says why this worker was refused or is poisoned, or that the endpoint is gone; else "
          "None.")
      .def("__repr__", [](const ReceiverStatus& status) {
        return "<ReceiverStatus " + std::string(to_string(status.state)) + ", version " +
               std::to_string(status.version) + (status.attached ? "" : ", not attached") +
               (status.error.ok() ? "" : ": " + std::string(message_of(status.error))) + ">";
      });
  nb::class_<Targets>(module, "Targets", "An engine's own tensors, and the sender's tensors that fill each.")
      .def(nb::init<>())
      .def("add", &Targets::add, nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("address"),
           nb::arg("device"), nb::arg("parts"), nb::arg("join_dim"));
  nb::class_<Memory>(module, "Memory", "Keeps the memory of a slot's tensors alive.");
  nb::class_<ReceiverHandle>(module, "Receiver")
      .def(nb::init<std::string, std::string, std::string, std::uint32_t, std::uint32_t, int, std::uintptr_t, int,
                    int>(),
           nb::arg("endpoint"), nb::arg("worker"), nb::arg("group"), nb::arg("rank"), nb::arg("ranks"),
           nb::arg("device"), nb::arg("stream"), nb::arg("log"), nb::arg("accept"))
      .def("abandon", &ReceiverHandle::abandon)
      .def("register_model", &ReceiverHandle::register_model, nb::arg("targets"), nb::arg("apply"), nb::arg("partial"),
           nb::arg("memory"))
      .def("join", &ReceiverHandle::join)
      .def("wait_ready", &ReceiverHandle::wait_ready, nb::arg("least"), nb::arg("timeout").none())
      .def("commit", &ReceiverHandle::commit, nb::arg("version").none())
      .def("take", &ReceiverHandle::take, nb::arg("version").none())
      .def("flip", &ReceiverHandle::flip)
      .def("unchanged", &ReceiverHandle::unchanged)
      .def("close", &ReceiverHandle::close)
      .def("finish", &ReceiverHandle::finish, nb::arg("error").none())
      .def("weights", &ReceiverHandle::weights, nb::arg("flip"))
      .def("description", &ReceiverHandle::description)
      .def("fileno", &ReceiverHandle::fileno)
      .def("status", &ReceiverHandle::status);
  module.def(
      "decide_by", [](nb::object function) { decides = function.release().ptr(); }, nb::arg("function"),
      "Sets what is called with a receiver's number for `accept`, its sender's tensors and their description.");
}

}  // namespace bascule::python
