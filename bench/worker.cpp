#include <bascule/bench/worker.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include <bascule/bench/allocations.h>
#include <bascule/bench/content.h>
#include <bascule/bench/footprint.h>
#include <bascule/bench/gpu.h>
#include <bascule/bench/own_host.h>
#include <bascule/bench/stall_log.h>
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kOtherWords = (std::uint64_t{64} << 20) / 8;  // more than most caches hold

constexpr std::uint64_t kOtherBytesOnGpu = std::uint64_t{128} << 20;

constexpr std::array<std::string_view, 3> kModes = {"idle", "step", "spin"};

Elapsed now() {
  const auto seconds = [](clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  return {.wall_seconds = seconds(CLOCK_MONOTONIC), .cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID)};
}
Elapsed operator-(const Elapsed& to, const Elapsed& from) {
  return {.wall_seconds = to.wall_seconds - from.wall_seconds, .cpu_seconds = to.cpu_seconds - from.cpu_seconds};
}

std::uint64_t read_words(const std::byte* data, std::uint64_t words) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + 8 * i, 8);
    sum += word;
  }
  return sum;
}

std::uint64_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

class Engine {
 public:
  Engine(WorkerOptions options, UniqueFd woken)
      : options_(std::move(options)),
        woken_(std::move(woken)),
        other_(options_.mode == WorkerMode::kStep && options_.device == kHost ? kOtherWords : 0, 1) {}

  // For an engine on a GPU, before connect(): its context, and the other memory that its steps read.
  absl::Status open_gpu() {
    if (options_.device == kHost) return absl::OkStatus();
    BASCULE_ASSIGN(gpu_, Gpu::open(options_.device));
    if (options_.mode == WorkerMode::kStep) {
      BASCULE_ASSIGN(other_on_gpu_, gpu_->allocate(kOtherBytesOnGpu));
      BASCULE_TRY(
          gpu_->write(Content(options_.seed, 0).elements("other", kOtherBytesOnGpu / 4, DType::kF32, DType::kF32),
                      other_on_gpu_.get()));
    }
    BASCULE_ASSIGN(free_at_first_, gpu_->free_bytes());
    return absl::OkStatus();
  }

  absl::Status connect() {
    ReceiverOptions options{.endpoint = options_.endpoint, .worker = options_.name};
    if (gpu_) options.device = gpu_->device();
    options.on_pending = [fd = woken_.get()] { ::eventfd_write(fd, 1); };
    BASCULE_ASSIGN(Receiver made, Receiver::connect(std::move(options)));
    receiver_.emplace(std::move(made));
    served_ = {};
    slots_.clear();
    take(receiver_->commit());  // sends the greeting
    return absl::OkStatus();
  }

  int run(Packets driver) {
    while (true) {
      const bool turning = options_.mode != WorkerMode::kIdle && receiver_ && served_.version != 0;
      std::array<pollfd, 2> ready = {{{.fd = driver.descriptor(), .events = POLLIN, .revents = 0},
                                      {.fd = woken_.get(), .events = POLLIN, .revents = 0}}};
      if (::poll(ready.data(), ready.size(), turning ? 0 : -1) < 0) continue;
      if (ready[1].revents != 0) {
        eventfd_t ignored = 0;
        ::eventfd_read(woken_.get(), &ignored);
        if (!turning) take(receiver_->commit());
      }
      if (ready[0].revents != 0) {
        absl::StatusOr<Json> question = driver.receive(Deadline(absl::ZeroDuration()));
        if (!question.ok()) return absl::IsOutOfRange(question.status()) ? 0 : 1;
        const std::optional<Json> reply = answer(*question);
        if (reply && !driver.send(*reply).ok()) return 1;
      }
      if (turning) turn();
      if (settling_ && *settling_ == 0) {
        settling_.reset();
        if (!driver.send(Json::object()).ok()) return 1;
      }
    }
  }

 private:
  void take(const Flip& flip) {
    served_ = flip;
    if (!flip.changed) return;
    const std::span<const TensorView> tensors = receiver_->weights(flip.slot).tensors();
    if (!tensors.empty()) slots_.insert(tensors.front().data);
  }

  // A token boundary and, with kStep, a token.
  void turn() {
    constexpr int kSpins = 256;  // between two checks of the driver's socket
    if (options_.mode == WorkerMode::kSpin) {
      for (int i = 0; i < kSpins; ++i) take(receiver_->commit());
      return;
    }
    read_others();
    const std::uint64_t faults = page_faults();
    const Elapsed start = now();
    const Flip flip = receiver_->commit();
    const Elapsed committed = now();
    read_weights(flip);
    stalls_.add({.flipped = flip.changed, .commit = committed - start, .step = now() - committed});
    if (flip.changed) flip_faults_ += page_faults() - faults;
    take(flip);
    ++steps_;
    if (settling_ && *settling_ > 0) --*settling_;
  }

  void read_others() {
    if (gpu_) return keep(gpu_->read(other_on_gpu_.get(), kOtherBytesOnGpu));
    sink_ = sink_ + read_words(reinterpret_cast<const std::byte*>(other_.data()), other_.size());
  }

  // Reads every weight, as a token does. On a GPU it reads them as one region of the slot.
  void read_weights(const Flip& flip) {
    const std::span<const TensorView> tensors = receiver_->weights(flip.slot).tensors();
    if (!gpu_) {
      for (const TensorView& tensor : tensors)
        sink_ = sink_ + read_words(tensor.data, byte_count(tensor.dtype, tensor.shape) / 8);
      return;
    }
    const auto first = std::ranges::min_element(tensors, {}, &TensorView::data);
    if (first != tensors.end()) keep(gpu_->read(first->data, options_.bytes));
  }
  void keep(const absl::Status& status) {
    if (gpu_error_.ok()) gpu_error_ = status;
  }

  // Returns nullopt if the answer comes later.
  std::optional<Json> answer(const Json& question) {
    const std::string what = question.value("do", "");
    absl::Status status;
    Json reply = Json::object();
    if (what == "ready") {
      status = ready();
    } else if (what == "check") {
      const std::uint64_t before = allocations().count;
      status = check(question);  // on a GPU it launches kernels
      allocations_ += allocations().count - before;
    } else if (what == "rejoin") {
      const Clock::time_point start = Clock::now();
      receiver_.reset();
      const Clock::time_point left = Clock::now();
      status = connect();
      if (status.ok()) status = ready();
      reply = {{"leave", seconds_between(start, left)}, {"join", seconds_between(left, Clock::now())}};
    } else if (what == "footprint") {
      const Footprint print = footprint(slots_);
      reply = {{"slots_rss", print.slots_rss},     {"rest_rss", print.rest_rss},
               {"rest_pss", print.rest_pss},       {"rest_private_dirty", print.rest_private_dirty},
               {"descriptors", print.descriptors}, {"threads", print.threads}};
    } else if (what == "allocations") {
      // Since the last request: a number of few digits, since the text of a long one would need another allocation.
      const std::uint64_t now = allocations().count;
      reply = {{"count", now - std::exchange(allocations_, now)}};
    } else if (what == "gpu_memory") {
      if (!gpu_) return Json{{"error", "reads host memory"}};
      const absl::StatusOr<std::uint64_t> free = gpu_->free_bytes();
      status = free.status();
      if (free.ok()) reply = {{"taken", static_cast<double>(free_at_first_) - static_cast<double>(*free)}};
    } else if (what == "steps") {
      reply = {{"count", std::exchange(steps_, 0)}};
    } else if (what == "settle") {
      settling_ = question.value("steps", std::size_t{0});
      return std::nullopt;
    } else if (what == "stalls") {
      for (const auto& [key, stalls] : {std::pair("flips", &stalls_.flips()), {"ordinary", &stalls_.ordinary()}})
        for (const Stall& stall : *stalls)
          reply[key].push_back(
              {stall.commit.wall_seconds, stall.lost.wall_seconds, stall.commit.cpu_seconds, stall.lost.cpu_seconds});
      reply["page_faults"] = std::exchange(flip_faults_, 0);
      stalls_.clear();
    } else {
      status = invalid_argument("unknown request to a worker: '", what, "'");
    }
    if (!status.ok()) reply = {{"error", std::string(message_of(status))}};
    return reply;
  }

  absl::Status ready() {
    BASCULE_TRY(receiver_->wait_ready(absl::Minutes(1)));
    take(receiver_->commit());
    if (served_.version == 0) return absl::InternalError("wait_ready() said that commit() would flip, but it did not");
    return absl::OkStatus();
  }

  absl::Status check(const Json& question) {
    BASCULE_TRY(gpu_error_);
    const Content content(options_.seed, question.at("generation").get<std::uint64_t>());
    return content.check(receiver_->weights(served_.slot).tensors(), options_.trainer_dtype, options_.tensors,
                         options_.bytes, gpu_.get());
  }

  const WorkerOptions options_;
  const UniqueFd woken_;
  std::optional<Receiver> receiver_;
  Flip served_;
  std::set<const void*> slots_;          // an address in each served slot
  std::optional<std::size_t> settling_;  // steps until the driver is told
  StallLog stalls_;
  std::uint64_t steps_ = 0;           // since the driver last asked
  std::uint64_t allocations_ = 0;     // when the driver last asked
  std::uint64_t flip_faults_ = 0;     // page faults of boundaries with a flip and the steps after them
  std::vector<std::uint64_t> other_;  // what a step reads besides weights
  std::shared_ptr<Gpu> gpu_;          // null: reads host memory
  std::shared_ptr<std::byte> other_on_gpu_;
  std::uint64_t free_at_first_ = 0;  // of the GPU's memory, before it connected
  absl::Status gpu_error_;           // of a step
  volatile std::uint64_t sink_ = 0;  // so that no reading is optimised away
};

}  // namespace

std::vector<std::string> command_line(const WorkerOptions& options) {
  return {"worker",
          options.endpoint,
          options.name,
          std::to_string(options.seed),
          std::string(name_of(options.trainer_dtype)),
          std::to_string(options.tensors),
          std::to_string(options.bytes),
          std::string(kModes[static_cast<std::size_t>(options.mode)]),
          std::to_string(options.device)};
}

int run_worker(const std::vector<std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // even during a long answer
  WorkerOptions options;
  const auto mode = arguments.size() == 8 ? std::find(kModes.begin(), kModes.end(), arguments[6]) : kModes.end();
  if (mode == kModes.end() || !absl::SimpleAtoi(arguments[2], &options.seed) || !dtype_named(arguments[3]) ||
      !absl::SimpleAtoi(arguments[4], &options.tensors) || !absl::SimpleAtoi(arguments[5], &options.bytes) ||
      !absl::SimpleAtoi(arguments[7], &options.device)) {
    std::fputs("bascule-bench worker: a role that bascule-bench starts by itself\n", stderr);
    return 2;
  }
  options.endpoint = arguments[0];
  options.name = arguments[1];
  options.trainer_dtype = *dtype_named(arguments[3]);
  options.mode = static_cast<WorkerMode>(mode - kModes.begin());
  Packets driver{UniqueFd(STDIN_FILENO)};
  be_own_host_as_driver();
  Engine engine(std::move(options), UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  absl::Status connected = engine.open_gpu();
  if (connected.ok()) connected = engine.connect();
  if (!connected.ok()) {
    (void)driver.send({{"error", std::string(message_of(connected))}});
    return 1;
  }
  if (!driver.send(Json::object()).ok()) return 1;
  return engine.run(std::move(driver));
}

absl::StatusOr<Worker> Worker::start(const WorkerOptions& options) {
  BASCULE_ASSIGN(Process process, Process::start(command_line(options), SOCK_SEQPACKET));
  Worker worker(options.name, std::move(process));
  worker.packets_ = Packets(worker.process_.take_socket());
  BASCULE_TRY(worker.answer().status());
  return worker;
}

absl::Status Worker::ask(const Json& question) { return annotate(packets_.send(question), cat("worker ", name_)); }

absl::StatusOr<Json> Worker::answer() {
  absl::StatusOr<Json> reply = packets_.receive(Deadline(absl::Minutes(2)));
  if (!reply.ok()) return annotate(reply.status(), cat("worker ", name_));
  if (reply->contains("error"))
    return absl::InternalError(cat("worker ", name_, ": ", reply->at("error").get<std::string>()));
  return reply;
}

absl::StatusOr<Json> Worker::call(const Json& question) {
  BASCULE_TRY(ask(question));
  return answer();
}

}  // namespace bascule::bench
