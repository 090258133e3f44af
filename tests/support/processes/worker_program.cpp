#include "support/processes/worker_program.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/devices/device_bytes.h"
#include "support/nccl/own_host.h"
#include "support/processes/doom.h"
#include "support/schemes/fake_scheme.h"
#include "support/schemes/host_schemes.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using Json = nlohmann::json;

// An engine's own tensors for the model that a trainer sends.
class OwnTensors {
 public:
  OwnTensors(ModelSize model, int device) {
    const TestModel like(model);
    for (const TensorSpec& spec : like.specs()) {
      memory_.push_back(bytes_on(device, byte_count(spec.dtype, spec.shape)));
      targets_.push_back({.name = spec.name,
                          .dtype = spec.dtype,
                          .shape = spec.shape,
                          .data = memory_.back().get(),
                          .device = device});
    }
  }
  const std::vector<TargetTensor>& targets() const { return targets_; }

 private:
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<TargetTensor> targets_;
};

// The receiver's warnings, each on a line. Unlike its status, they stay when it has joined again.
class Warnings {
 public:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    text_ += cat(line, "\n");
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

class WorkerProgram {
 public:
  WorkerProgram(Receiver receiver, const std::atomic<int>& pendings, const Warnings& warnings, ModelSize model,
                int device)
      : receiver_(std::move(receiver)), pendings_(pendings), warnings_(warnings), model_(model), device_(device) {}

  enum class Mode { kPause, kHold, kRun };
  Mode mode = Mode::kPause;

  void turn() {
    if (mode == Mode::kRun) commit();
    if (mode != Mode::kPause) check();
  }
  void commit() { take(receiver_.commit()); }
  void join() { receiver_.join(); }
  void take_alone() { take(receiver_.take()); }
  void finish() { receiver_.finish(); }
  void fail() {
    receiver_.finish(absl::ResourceExhaustedError("no room to load it"));
    served_ = {};
  }
  void copy_behind(Version version) { take(receiver_.commit(version)); }
  void take(const Flip& flip) {
    if (flip.changed) {
      ++flips_;
      const std::pair before(served_.epoch, served_.version), now(flip.epoch, flip.version);
      // After a lost connection the served version may be announced again, and come into another of its buffers.
      if (now < before || (now == before && flip.slot == served_.slot))
        wrong(cat("flipped from version ", served_.version, " of epoch ", served_.epoch, " back to ", flip.version,
                  " of ", flip.epoch));
    } else if (flip.version != served_.version) {
      wrong(cat("serves version ", flip.version, " without a flip from ", served_.version));
    }
    served_ = flip;
  }
  void check() {
    if (served_.version == 0 || served_.poisoned || lost_) return;
    const std::span<const TensorView> tensors = receiver_.weights(served_.slot).tensors();
    const auto [known, is_new] = addresses_.emplace(served_.slot, tensors.data());
    if (!is_new && known->second != tensors.data()) wrong("the views of a slot moved");
    const absl::StatusOr<std::uint64_t> generation = generation_of(tensors, model_);
    if (!generation.ok())
      return wrong(
          cat("version ", served_.version, ", slot ", served_.slot.index, ": ", message_of(generation.status())));
    if (generation_.first == served_.version && generation_.second != *generation)
      wrong(cat("version ", served_.version, " changed from generation ", generation_.second, " to ", *generation));
    generation_ = {served_.version, *generation};
    ++checks_;
  }

  void lose() {
    lose_context(device_);
    lost_ = true;
    mode = Mode::kRun;
  }

  Json report() {
    const ReceiverStatus status = receiver_.status();
    return {{"epoch", served_.epoch},
            {"version", served_.version},
            {"generation", generation_.second},
            {"flips", flips_},
            {"checks", checks_},
            {"pendings", pendings_.load()},
            {"state", to_string(status.state)},
            {"attached", status.attached},
            {"poisoned", served_.poisoned},
            {"error", std::string(message_of(status.error))},
            {"warned", warnings_.text()},
            {"devices", device_ == kHost || lost_ ? std::vector<int>() : used_devices()},
            {"wrong", wrong_}};
  }
  Json ready(absl::Duration timeout, Version least) {
    const absl::Status status = receiver_.wait_ready(least, timeout);
    return {{"ok", status.ok()}, {"error", status.ToString()}};
  }

 private:
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  Receiver receiver_;
  const std::atomic<int>& pendings_;
  const Warnings& warnings_;
  const ModelSize model_;
  const int device_;
  Flip served_;
  std::pair<Version, std::uint64_t> generation_{0, 0};  // of a version
  std::map<SlotId, const TensorView*> addresses_;
  std::uint64_t flips_ = 0, checks_ = 0;
  std::string wrong_;
  bool lost_ = false;  // the device is lost
};

}  // namespace

int run_worker(const WorkerArguments& arguments, LineEnd commands) {
  std::atomic<int> pendings = 0;
  warm_up(arguments.device);
  FakeFaults faults;
  const Scheme fake = fake_scheme(faults);
  ReceiverOptions options{.endpoint = arguments.endpoint,
                          .worker = arguments.name,
                          .group = arguments.group,
                          .rank = arguments.rank,
                          .ranks = arguments.ranks};
  // Over cuda-ipc on the trainer's own device, the receiver finds the device itself.
  if (!arguments.endpoint.starts_with("cuda-ipc:") || arguments.device != device_for(arguments.endpoint))
    options.device = arguments.device;
  options.on_pending = [&pendings] { ++pendings; };
  Warnings warnings;
  options.warn = [&warnings](std::string_view line) { warnings.add(line); };
  Doom doom;
  options.trace = [&doom](std::string_view) { doom.count(); };
  if (is_fake(arguments.endpoint)) options.scheme = &fake;
  if (const Scheme* const host = host_scheme(arguments.endpoint)) options.scheme = host;
  if (arguments.scheme != nullptr) options.scheme = arguments.scheme;
  std::optional<OwnTensors> tensors;
  if (arguments.copies) tensors.emplace(arguments.model, arguments.device);
  absl::StatusOr<Receiver> receiver = Receiver::connect(std::move(options));
  absl::Status status = receiver.status();
  if (status.ok() && arguments.copies)
    status = receiver->register_model(tensors->targets(), {.apply = *arguments.copies});
  commands.write(Json{{"ok", status.ok()}, {"error", status.ToString()}}.dump());
  if (!status.ok()) return 1;

  using Mode = WorkerProgram::Mode;
  WorkerProgram program(*std::move(receiver), pendings, warnings, arguments.model, arguments.device);
  while (true) {
    // One turn per millisecond: a reader that never sleeps would starve the writer on a small machine.
    const absl::Duration nap = program.mode == Mode::kPause ? absl::InfiniteDuration() : absl::Milliseconds(1);
    const absl::StatusOr<std::string> line = commands.read(Deadline(nap));
    program.turn();
    if (absl::IsDeadlineExceeded(line.status())) continue;
    if (!line.ok()) return 0;
    std::istringstream words(*line);
    std::string verb, word;
    std::int64_t number = 0;
    words >> verb;
    Json answer = {{"ok", true}};
    if (verb == "run") {
      program.mode = Mode::kRun;
    } else if (verb == "hold") {
      program.mode = Mode::kHold;
    } else if (verb == "pause") {
      program.mode = Mode::kPause;
    } else if (verb == "step") {
      program.commit();
      program.check();
      answer = program.report();
    } else if (verb == "join") {
      program.join();
    } else if (verb == "take") {
      program.take_alone();
      program.check();
      answer = program.report();
    } else if (verb == "finish") {
      program.finish();
    } else if (verb == "fail") {
      program.fail();
    } else if (verb == "follow" && words >> number) {
      program.copy_behind(static_cast<Version>(number));
      program.check();
      answer = program.report();
    } else if (verb == "die" && words >> number) {
      doom.set(static_cast<int>(number));
    } else if (verb == "report") {
      answer = program.report();
    } else if (verb == "ready" && words >> number) {
      std::int64_t least = 0;
      words >> least;
      answer = program.ready(absl::Milliseconds(number), static_cast<Version>(least));
    } else if (verb == "fault" && words >> word >> number) {
      answer = {{"ok", faults.set(word, static_cast<int>(number))}};
    } else if (verb == "lose") {
      program.lose();
    } else if (verb == "quit") {
      return 0;
    } else {
      answer = {{"ok", false}, {"error", cat("unknown command: ", *line)}};
    }
    commands.write(answer.dump());
  }
}

}  // namespace bascule::test
