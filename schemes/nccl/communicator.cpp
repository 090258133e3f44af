#include <bascule/schemes/nccl/communicator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <bascule/transport/caught.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0::nccl {
namespace {

using std::chrono::microseconds;

std::atomic<int> alive_communicators{0};
std::atomic<int> abandoned_inits{0};

// Pauses between two polls: spins at first, since a broadcast of 16 MB takes 50 us and a sleeping thread wakes 50 us
// late; then sleeps.
class Pause {
 public:
  void operator()() {
    if (Clock::now() - since_ < kAwake) return std::this_thread::yield();
    std::this_thread::sleep_for(kAsleep);
  }
  void again() { since_ = Clock::now(); }  // something happened

 private:
  static constexpr microseconds kAwake{500}, kAsleep{50};
  Clock::time_point since_ = Clock::now();
};

absl::Status aborted() { return absl::CancelledError("nccl: the communicator was left"); }

}  // namespace

struct Communicator::State {
  State(const Library& nccl, std::shared_ptr<Place> where, Rank which, Options chosen, Handlers answers)
      : library(nccl), place(std::move(where)), rank(which), options(chosen), handlers(std::move(answers)) {}

  const Library& library;
  const std::shared_ptr<Place> place;
  const Rank rank;
  const Options options;
  const Handlers handlers;
  std::atomic<bool> aborting = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Broadcast> queue;
  bool ended = false;        // it accepts no further ones
  bool abort_ended = false;  // it has returned

  std::mutex calls;                // of NCCL, one at a time
  std::atomic<bool> left = false;  // set under `calls`: after that the only call is the abort
  CommHandle* handle = nullptr;    // under `calls`

  std::unique_ptr<Lane> lane;  // used by the first thread

  void run();
  void abort_once_asked();
  absl::Status make();
  absl::Status send(const Broadcast& broadcast, std::uint64_t& there);
  absl::StatusOr<bool> is_done(std::string_view what);
  absl::Status settle(std::string_view what);
  void leave_stream();
  absl::Status told(Code code, std::string_view what) const;

  template <typename Call>
  absl::Status ask(std::string_view what, Call call) {
    const std::lock_guard lock(calls);
    if (left) return aborted();
    return told(call(), what);
  }
};

absl::Status Communicator::State::told(Code code, std::string_view what) const {
  if (code == Code::kSuccess || code == Code::kInProgress) return absl::OkStatus();
  const char* const more = handle != nullptr ? library.last_error(handle) : nullptr;
  return unavailable("nccl: ", what, ": ", library.error_string(code), more != nullptr && *more != '\0' ? ": " : "",
                     more != nullptr ? more : "");
}

// Returns false while the last call is under way.
absl::StatusOr<bool> Communicator::State::is_done(std::string_view what) {
  Code code = Code::kSuccess;
  BASCULE_TRY(ask(what, [&] {
    const Code asked = library.comm_get_async_error(handle, &code);
    return asked == Code::kSuccess ? code : asked;
  }));
  return code != Code::kInProgress;
}

// Waits until NCCL has finished the last call; it accepts no other before.
absl::Status Communicator::State::settle(std::string_view what) {
  for (Pause pause;; pause()) {
    BASCULE_ASSIGN(const bool done, is_done(what));
    if (done) return absl::OkStatus();
    if (aborting) return aborted();
  }
}

absl::Status Communicator::State::make() {
  BASCULE_ASSIGN(lane, place->open_lane(/*sends=*/rank.rank == 0));
  Config config;
  config.blocking = 0;
  if (options.max_ctas > 0) {
    config.min_ctas = 1;
    config.max_ctas = options.max_ctas;
  }
  BASCULE_TRY(
      ask("join", [&] { return library.comm_init_rank_config(&handle, rank.ranks, rank.id, rank.rank, &config); }));
  return settle("join");
}

absl::Status Communicator::State::send(const Broadcast& broadcast, std::uint64_t& there) {
  struct Piece {
    std::uint64_t end = 0;
    std::unique_ptr<DeviceMark> mark;
  };
  std::deque<Piece> under_way;
  std::uint64_t begun = broadcast.from;
  there = broadcast.from;
  const auto look = [&]() -> absl::Status {  // checks the stream's progress
    while (!under_way.empty()) {
      const absl::Status passed = under_way.front().mark->wait(Deadline(absl::ZeroDuration()));
      if (absl::IsDeadlineExceeded(passed)) return absl::OkStatus();
      BASCULE_TRY(passed);
      if (left) return aborted();  // an abort ends the pieces that did not come
      there = under_way.front().end;
      under_way.pop_front();
    }
    return absl::OkStatus();
  };
  for (Pause pause; there < broadcast.bytes;) {
    if (aborting) {
      look().IgnoreError();  // pieces that came need not be sent again
      return there < broadcast.bytes ? aborted() : absl::OkStatus();
    }
    const std::uint64_t end = std::min(begun + broadcast.piece_bytes, broadcast.bytes);
    if (begun < end && (!broadcast.written || broadcast.written() >= end)) {
      std::byte* const piece = broadcast.memory.get() + begun;
      BASCULE_TRY(ask("broadcast",
                      [&] { return library.broadcast(piece, piece, end - begun, kUint8, 0, handle, lane->stream()); }));
      BASCULE_TRY(settle("broadcast"));
      if (broadcast.enqueued) BASCULE_TRY(broadcast.enqueued(lane->stream(), begun, end));
      BASCULE_ASSIGN(std::unique_ptr<DeviceMark> mark, lane->mark());
      under_way.push_back({.end = end, .mark = std::move(mark)});
      begun = end;
      pause.again();
      continue;
    }
    const std::uint64_t before = there;
    BASCULE_TRY(look());
    if (there > before) pause.again();
    BASCULE_TRY(is_done("broadcast").status());
    pause();
  }
  return absl::OkStatus();
}

// An abort returns while kernels are still on the stream (0.35 s were seen). Their memory must stay until they leave,
// or forever if they never do.
void Communicator::State::leave_stream() {
  const absl::StatusOr<std::unique_ptr<DeviceMark>> end = lane->mark();
  while (end.ok() && absl::IsDeadlineExceeded((*end)->wait(Deadline(absl::Milliseconds(100))))) {
  }
}

void Communicator::State::run() {
  own_thread_of_devices();
  absl::Status status = make();
  const bool made = status.ok();
  handlers.made(status);
  std::shared_ptr<std::byte> touched;  // by pieces on the stream, which only an abort ends
  while (true) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return aborting || !queue.empty(); });
    if (queue.empty()) {  // aborting
      ended = true;
      break;
    }
    const Broadcast broadcast = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    std::uint64_t there = broadcast.from;
    if (status.ok()) {
      status = aborting ? aborted() : send(broadcast, there);
      if (!status.ok()) touched = broadcast.memory;
    }
    broadcast.done(status, there);
  }
  if (handle != nullptr && !made && absl::IsCancelled(status) && rank.rank == 0)
    ++abandoned_inits;  // not if it failed: then it has ended
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return abort_ended; });
  }
  if (handle != nullptr) leave_stream();
  touched.reset();
  lane.reset();
  --alive_communicators;
  handlers.ended();
}

void Communicator::State::abort_once_asked() {
  own_thread_of_devices();
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return aborting.load(); });
  }
  {
    const std::lock_guard lock(calls);
    left = true;
  }
  if (handle != nullptr) library.comm_abort(handle);  // its error could not be handled
  const std::lock_guard lock(mutex);
  abort_ended = true;
  changed.notify_all();
}

Communicator::Communicator(const Library& library, std::shared_ptr<Place> place, Rank rank, Options options,
                           Handlers handlers)
    : state_(std::make_shared<State>(library, std::move(place), rank, options, std::move(handlers))) {
  ++alive_communicators;
  const absl::Status started = starting_threads("a communicator", [this] {
    std::thread([state = state_] { static_cast<void>(caught([&] { state->abort_once_asked(); })); }).detach();
    std::thread([state = state_] { static_cast<void>(caught([&] { state->run(); })); }).detach();
    return absl::OkStatus();
  });
  if (started.ok()) return;
  abort();  // ends a thread that may have started
  --alive_communicators;
  state_->ended = true;
  state_->handlers.made(started);
  state_->handlers.ended();
}

Communicator::~Communicator() { abort(); }

void Communicator::broadcast(Broadcast broadcast) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->ended) {
      state_->queue.push_back(std::move(broadcast));
      state_->changed.notify_all();
      return;
    }
  }
  broadcast.done(aborted(), broadcast.from);
}

Broadcast warm_broadcast(std::shared_ptr<std::byte> scratch, std::function<void(absl::Status)> done) {
  return {.memory = std::move(scratch),
          .bytes = kWarmBytes,
          .piece_bytes = kWarmBytes,
          .written = {},
          .enqueued = {},
          .done = [done = std::move(done)](absl::Status status, std::uint64_t) { done(std::move(status)); }};
}

void Communicator::abort() {
  const std::lock_guard lock(state_->mutex);
  state_->aborting = true;
  state_->changed.notify_all();
}

int Communicator::alive() { return alive_communicators; }
int Communicator::abandoned() { return abandoned_inits; }

}  // namespace bascule::inline v0::nccl
