// The table of the fake NCCL, its faults, and its counts for tests.
#include "support/nccl/fake_nccl_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::test {

using namespace fake_nccl;

namespace {

using State = FakeNccl::State;

State& fake() { return FakeNccl::instance().state(); }

Library make_library() {
  Library library;
  library.get_version = [](int* version) {
    const std::lock_guard lock(fake().mutex);
    *version = fake().version;
    return Code::kSuccess;
  };
  library.get_unique_id = [](UniqueId* id) {
    State& state = fake();
    const std::lock_guard lock(state.mutex);
    if (take(state.failing_ids)) return Code::kSystemError;
    const std::uint64_t number = ++state.last_id;
    *id = {};
    std::memcpy(id->bytes.data(), &number, sizeof(number));
    state.groups.emplace_back().id = *id;
    return Code::kSuccess;
  };
  library.comm_init_rank_config = [](CommHandle** comm, int ranks, UniqueId id, int rank, Config* config) {
    const std::lock_guard lock(fake().mutex);
    return fake().init(comm, ranks, id, rank, config);
  };
  library.comm_get_async_error = [](CommHandle* comm, Code* code) {
    State& state = fake();
    const std::lock_guard lock(state.mutex);
    if (comm == nullptr) return state.misuse(Code::kInvalidArgument, "get_async_error of null");
    Comm& found = State::comm_of(comm);
    if (found.phase == Comm::Phase::kGone)
      return state.misuse(Code::kInvalidArgument, "get_async_error of ", found.name, ", which is destroyed or aborted");
    *code = state.poll(found);
    return Code::kSuccess;
  };
  library.broadcast = [](const void* send, void* receive, std::size_t count, int type, int root, CommHandle* comm,
                         Stream stream) {
    State& state = fake();
    const std::lock_guard lock(state.mutex);
    if (comm == nullptr) return state.misuse(Code::kInvalidArgument, "broadcast of null");
    return state.broadcast(send, receive, count, type, root, State::comm_of(comm), state.line_of(stream));
  };
  library.comm_finalize = [](CommHandle* comm) {
    if (comm == nullptr) return Code::kSuccess;
    State& state = fake();
    const std::lock_guard lock(state.mutex);
    Comm& found = State::comm_of(comm);
    if (const Code code = state.enter(found, "finalize"); code != Code::kSuccess) return code;
    if (found.phase != Comm::Phase::kReady)
      return state.misuse(Code::kInvalidArgument, "finalize of ", found.name, ", which is finalised or revoked");
    state.begin(found, Comm::Phase::kFinalizing);
    return Code::kInProgress;
  };
  library.comm_destroy = [](CommHandle* comm) {
    if (comm == nullptr) return Code::kSuccess;
    const std::lock_guard lock(fake().mutex);
    return fake().destroy(State::comm_of(comm));
  };
  library.comm_abort = [](CommHandle* comm) {
    if (comm == nullptr) return Code::kSuccess;
    std::unique_lock lock(fake().mutex);
    return fake().abort(State::comm_of(comm), lock);
  };
  library.error_string = [](Code code) {
    switch (code) {
      case Code::kSuccess: return "no error";
      case Code::kUnhandledCudaError: return "unhandled cuda error";
      case Code::kSystemError: return "unhandled system error";
      case Code::kInternalError: return "internal error";
      case Code::kInvalidArgument: return "invalid argument";
      case Code::kInvalidUsage: return "invalid usage";
      case Code::kRemoteError: return "remote process exited or there was a network error";
      case Code::kInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
  };
  library.last_error = [](CommHandle*) { return "the fake's last error"; };
  library.comm_revoke = [](CommHandle* comm, int flags) {
    if (comm == nullptr) return Code::kSuccess;
    State& state = fake();
    const std::lock_guard lock(state.mutex);
    Comm& found = State::comm_of(comm);
    using Phase = Comm::Phase;
    if (flags != 0 || (found.phase != Phase::kInit && found.phase != Phase::kReady && found.phase != Phase::kPosting))
      return state.misuse(Code::kInvalidArgument, "revoke of ", found.name, ", which is finalised, revoked or gone");
    state.end_broadcasts(found);
    found.error = found.next_error = found.late_error = Code::kSuccess;
    state.begin(found, Phase::kRevoking);
    return Code::kInProgress;
  };
  return library;
}

}  // namespace

FakeNccl::FakeNccl() : state_(std::make_unique<State>()) { state_->library = make_library(); }

FakeNccl& FakeNccl::instance() {
  static FakeNccl* const nccl = new FakeNccl;  // for good: a thread whose abort hangs may outlive main()
  return *nccl;
}

void FakeNccl::renew() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.hanging_aborts = 0;
  state.hanging_rank.reset();
  ++state.waits_of_hung;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.hung == 0; });
  for (Comm& comm : state.comms) {
    comm.phase = Comm::Phase::kGone;
    comm.posting.reset();
    comm.posted.clear();
  }
  for (Line& line : state.lines) {
    line.work.clear();
    line.done = line.given;
    line.stalled = line.dead = false;
  }
  state.version = kVersion;
  state.first_id = state.last_id + 1;
  state.init_delay = {};
  state.failing_inits = state.failing_broadcasts = state.late_broadcasts = state.failing_ids = 0;
  state.broadcasts = state.aborts = 0;
  state.misuses.clear();
  state.last_config = {};
  state.changed.notify_all();
}

const Library& FakeNccl::library() const { return state_->library; }

Library FakeNccl::library_without_revoke() const {
  Library library = state_->library;
  library.comm_revoke = nullptr;
  return library;
}

void FakeNccl::set_version(int version) {
  const std::lock_guard lock(state_->mutex);
  state_->version = version;
}

void FakeNccl::slow_init(std::chrono::milliseconds duration) {
  const std::lock_guard lock(state_->mutex);
  state_->init_delay = duration;
}

void FakeNccl::fail_init(int times) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_inits = times;
}

void FakeNccl::fail_broadcast(int times) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_broadcasts = times;
}

void FakeNccl::fail_broadcast_late(int times) {
  const std::lock_guard lock(state_->mutex);
  state_->late_broadcasts = times;
}

void FakeNccl::fail_unique_id(int times) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_ids = times;
}

void FakeNccl::hang_abort(int times, std::optional<int> rank) {
  const std::lock_guard lock(state_->mutex);
  state_->hanging_aborts = times;
  state_->hanging_rank = rank;
}

void FakeNccl::free_aborts() {
  const std::lock_guard lock(state_->mutex);
  state_->hanging_aborts = 0;
  ++state_->waits_of_hung;
  state_->changed.notify_all();
}

bool FakeNccl::wait_for_hung_aborts(int aborts, Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.at(), [&] { return state_->hung >= aborts; });
}

int FakeNccl::ids() const {
  const std::lock_guard lock(state_->mutex);
  return state_->count_ids([](const Group&) { return true; });
}

int FakeNccl::unused_ids() const {
  const std::lock_guard lock(state_->mutex);
  return state_->count_ids([](const Group& group) { return group.ranks == 0; });
}

int FakeNccl::live_threads() const {
  const std::lock_guard lock(state_->mutex);
  return state_->count_ids([](const Group& group) { return !group.complete(); });
}

int FakeNccl::live_comms() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(
      std::ranges::count_if(state_->comms, [](const Comm& comm) { return comm.phase != Comm::Phase::kGone; }));
}

int FakeNccl::broadcasts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->broadcasts;
}

int FakeNccl::aborts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->aborts;
}

int FakeNccl::misuses() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->misuses.size());
}

std::vector<std::string> FakeNccl::misuse_texts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->misuses;
}

Config FakeNccl::last_config() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_config;
}

}  // namespace bascule::test
