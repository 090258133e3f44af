#include "sender.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "logs.h"
#include "shards.h"
#include "tensors.h"
#include "unlocked.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::python {
namespace {

// A slot on loan, whose tensors Python fills. Dropping it aborts the version.
class Loan {
 public:
  explicit Loan(WritableSlot slot) : slot_(std::move(slot)) {}
  ~Loan() { drop(); }
  nb::dict tensors() {
    nb::dict tensors;
    for (const MutableTensorView& tensor : slot_->tensors())
      tensors[nb::str(tensor.name.data(), tensor.name.size())] = array_over(tensor, nb::find(this));
    return tensors;
  }
  WritableSlot take() {
    WritableSlot taken = *std::move(slot_);
    slot_.reset();
    return taken;
  }
  void drop() {
    const Unlocked unlocked;
    slot_.reset();
  }

 private:
  std::optional<WritableSlot> slot_;
};

class SenderHandle {
  // Runs without the GIL. A signal's exception takes precedence over the interrupted call's error.
  template <typename Call>
  auto call(Call call) {
    let_go_ = false;
    auto result = [&] {
      const Unlocked unlocked;
      return call();
    }();
    if (PyErr_Occurred()) throw nb::python_error();
    if constexpr (std::is_same_v<decltype(result), absl::Status>) {
      check(std::move(result));
    } else {
      return value_of(std::move(result));
    }
  }

 public:
  // log, trace: numbers of logs (LogLines). No messages are traced if `trace` is 0.
  SenderHandle(std::string endpoint, int threads, int log, int trace, std::uint32_t rank, std::uint32_t ranks) {
    SenderOptions options{.endpoint = std::move(endpoint), .threads = threads, .rank = rank, .ranks = ranks};
    options.log = LogLines::sink(log, /*is_warning=*/false);
    options.warn = LogLines::sink(log, /*is_warning=*/true);
    if (trace != 0) options.trace = LogLines::sink(trace, /*is_warning=*/false);
    options.interrupted = [this] { return is_interrupted(); };
    sender_.emplace(call([&] { return Sender::listen(std::move(options)); }));
  }
  ~SenderHandle() { close(); }

  void close() {
    registered_ = nullptr;
    const Unlocked unlocked;
    sender_.reset();
  }
  // Call it in a forked child, which does not have the threads and must not use the sockets.
  void abandon() {
    registered_ = nullptr;
    if (sender_) new Sender(*std::move(sender_));
    sender_.reset();
  }

  void register_tensors(const Tensors& tensors, const std::string& description) {
    std::unique_ptr<BorrowedTensors> source = tensors.source();
    BorrowedTensors* const registered = source.get();
    call([&] { return sender().register_model(std::move(source), description); });
    registered_ = registered;
  }
  void register_specs(const Tensors& tensors, int device) {
    call([&] { return sender().register_model(tensors.specs(), device); });
  }
  void register_shards(const Shards& shards, const std::string& description, std::optional<double> timeout) {
    call([&] { return sender().register_shards(shards.source(), description, timeout_of(timeout)); });
  }
  void move(std::size_t index, std::uintptr_t address, std::vector<std::int64_t> strides) {
    registered().move(index, reinterpret_cast<const void*>(address), std::move(strides));
  }
  void move_factors(std::size_t index, std::uintptr_t b, std::uintptr_t a) {
    registered().move_factors(index, reinterpret_cast<const void*>(b), reinterpret_cast<const void*>(a));
  }
  void set_stream(std::uintptr_t stream) { registered().set_stream(reinterpret_cast<Stream>(stream)); }

  void expect_workers(int count, std::vector<std::string> names) {
    call([&] { return sender().expect_workers({.count = count, .names = std::move(names)}); });
  }
  std::vector<std::string> wait_for_workers(int count, std::optional<double> timeout) {
    return call([&] { return sender().wait_for_workers(count, timeout_of(timeout)); });
  }
  SendReport send(const Tensors* weights, const std::vector<std::string>& worker_ids) {
    return call([&] { return sender().send(source_of(weights), worker_ids); });
  }
  void send_async(const Tensors* weights, const std::vector<std::string>& worker_ids) {
    call([&] { return sender().send_async(source_of(weights), worker_ids); });
  }
  SendReport send_shards(std::uint64_t step, std::vector<std::string> worker_ids) {
    return call([&] { return sender().send({.step = step, .worker_ids = std::move(worker_ids)}); });
  }
  void send_shards_async(std::uint64_t step, std::vector<std::string> worker_ids) {
    call([&] { return sender().send_async({.step = step, .worker_ids = std::move(worker_ids)}); });
  }
  SendReport wait_async(std::optional<double> timeout) {
    return call([&] { return sender().wait_async(timeout_of(timeout)); });
  }
  void update_weights(const Tensors* weights) {
    call([&] { return sender().update_weights(source_of(weights)); });
  }
  std::unique_ptr<Loan> loan(const std::vector<std::string>& worker_ids) {
    return std::make_unique<Loan>(call([&] { return sender().loan(worker_ids); }));
  }
  SendReport publish(Loan& loan) {
    return call([&] { return sender().publish(loan.take()); });
  }
  Version version() { return sender().version(); }
  // Interrupts the call in progress. Another thread calls it.
  void let_go() { let_go_ = true; }

 private:
  Sender& sender() {
    if (!sender_) throw Failure{failed_precondition("this sender is closed")};
    return *sender_;
  }
  BorrowedTensors& registered() {
    if (registered_ == nullptr) throw Failure{failed_precondition("this sender is closed")};
    return *registered_;
  }
  static std::unique_ptr<TensorSource> source_of(const Tensors* weights) {
    return weights == nullptr ? nullptr : weights->source();
  }
  bool is_interrupted() {
    if (let_go_) return true;
    sleep_if_interpreter_ends();
    const nb::gil_scoped_acquire acquire;
    return PyErr_Occurred() || PyErr_CheckSignals() != 0;
  }

  std::optional<Sender> sender_;
  BorrowedTensors* registered_ = nullptr;  // the sender owns it
  std::atomic<bool> let_go_ = false;
};

}  // namespace

void bind_sender(nb::module_& module) {
  nb::class_<Loan>(module, "Loan", "A slot on loan.")
      .def("tensors", &Loan::tensors, "Objects with __dlpack__ over the slot's writable memory, by name.")
      .def("drop", &Loan::drop, "Aborts the version.");
  nb::class_<SenderHandle>(module, "Sender")
      .def(nb::init<std::string, int, int, int, std::uint32_t, std::uint32_t>(), nb::arg("endpoint"),
           nb::arg("threads"), nb::arg("log"), nb::arg("trace"), nb::arg("rank"), nb::arg("ranks"))
      .def("close", &SenderHandle::close)
      .def("abandon", &SenderHandle::abandon)
      .def("register_tensors", &SenderHandle::register_tensors, nb::arg("tensors"), nb::arg("description"))
      .def("register_specs", &SenderHandle::register_specs, nb::arg("tensors"), nb::arg("device"))
      .def("register_shards", &SenderHandle::register_shards, nb::arg("shards"), nb::arg("description"),
           nb::arg("timeout").none())
      .def("move", &SenderHandle::move, nb::arg("index"), nb::arg("address"), nb::arg("strides"))
      .def("move_factors", &SenderHandle::move_factors, nb::arg("index"), nb::arg("b"), nb::arg("a"))
      .def("set_stream", &SenderHandle::set_stream, nb::arg("stream"))
      .def("expect_workers", &SenderHandle::expect_workers, nb::arg("count"), nb::arg("names"))
      .def("wait_for_workers", &SenderHandle::wait_for_workers, nb::arg("count"), nb::arg("timeout").none())
      .def("send", &SenderHandle::send, nb::arg("weights").none(), nb::arg("worker_ids"))
      .def("send_async", &SenderHandle::send_async, nb::arg("weights").none(), nb::arg("worker_ids"))
      .def("send_shards", &SenderHandle::send_shards, nb::arg("step"), nb::arg("worker_ids"))
      .def("send_shards_async", &SenderHandle::send_shards_async, nb::arg("step"), nb::arg("worker_ids"))
      .def("wait_async", &SenderHandle::wait_async, nb::arg("timeout").none())
      .def("update_weights", &SenderHandle::update_weights, nb::arg("weights").none())
      .def("loan", &SenderHandle::loan, nb::arg("worker_ids"))
      .def("publish", &SenderHandle::publish, nb::arg("loan"))
      .def("version", &SenderHandle::version)
      .def("let_go", &SenderHandle::let_go);
}

}  // namespace bascule::python
