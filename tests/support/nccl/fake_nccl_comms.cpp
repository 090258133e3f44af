// The communicators of the fake NCCL.
#include "support/nccl/fake_nccl_state.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace bascule::test {

using namespace fake_nccl;

namespace {

constexpr int kPolls = 2;  // after a call, the first get_async_error finds it in progress, the second finds it done

}  // namespace

Code FakeNccl::State::enter(Comm& comm, const char* call) {
  if (comm.phase == Comm::Phase::kGone)
    return misuse(Code::kInvalidArgument, call, " of ", comm.name, ", which is destroyed or aborted");
  if (comm.error != Code::kSuccess) return comm.error;
  if (comm.in_progress()) return misuse(Code::kInvalidArgument, call, " of ", comm.name, " in progress");
  if (std::string_view(comm.users_name) != comm.given_name)
    return misuse(Code::kInvalidArgument, call, " of ", comm.name, ", whose comm_name did not live as long as it");
  return Code::kSuccess;
}

void FakeNccl::State::begin(Comm& comm, Comm::Phase phase) {
  comm.phase = phase;
  comm.polls_left = kPolls;
}

Code FakeNccl::State::init(CommHandle** handle, int ranks, const UniqueId& id, int rank, const Config* config) {
  *handle = nullptr;
  Group* const group = group_of(id);
  if (config == nullptr || config->magic != nccl::kMagic || config->size < sizeof(Config))
    return misuse(Code::kInvalidArgument, "init with a configuration that is not initialised");
  if (config->blocking != 0) return misuse(Code::kInvalidArgument, "init that blocks, which the fake does not have");
  if (config->min_ctas > config->max_ctas) return misuse(Code::kInvalidArgument, "init with min_ctas above max_ctas");
  if (group == nullptr || number_of(*group) < first_id)
    return misuse(Code::kInvalidArgument, "init with an id that was never drawn");
  if (ranks < 1 || rank < 0 || rank >= ranks || group->members.contains(rank) ||
      (group->ranks != 0 && group->ranks != ranks))
    return misuse(Code::kInvalidArgument, "init as rank ", rank, " of ", ranks, ", which does not fit the others");
  last_config = *config;
  Comm& comm = comms.emplace_back();
  comm.group = group;
  comm.rank = rank;
  comm.users_name = config->comm_name == nullptr ? "" : config->comm_name;
  comm.given_name = comm.users_name;
  comm.name = cat(comm.given_name.empty() ? "a communicator" : comm.given_name, " (rank ", rank, ")");
  begin(comm, Comm::Phase::kInit);
  group->ranks = ranks;
  if (take(failing_inits)) {
    comm.next_error = Code::kSystemError;
  } else {
    group->members[rank] = &comm;
    if (group->complete()) group->ready_at = Clock::now() + init_delay;
  }
  *handle = reinterpret_cast<CommHandle*>(&comm);
  return Code::kInProgress;
}

Code FakeNccl::State::broadcast(const void* send, void* receive, std::size_t count, int type, int root, Comm& comm,
                                Line& line) {
  if (const Code code = enter(comm, "broadcast"); code != Code::kSuccess) return code;
  if (comm.phase != Comm::Phase::kReady)
    return misuse(Code::kInvalidUsage, "broadcast of ", comm.name, ", which is finalised or revoked");
  if (type != nccl::kUint8 || root < 0 || root >= comm.group->ranks || receive == nullptr ||
      (comm.rank == root && send == nullptr))
    return misuse(Code::kInvalidArgument, "broadcast of ", comm.name, " with impossible arguments");
  check_order(line, "a broadcast of ", comm.name);
  if (take(failing_broadcasts)) return comm.error = Code::kSystemError;
  comm.posting = std::make_shared<Broadcast>(Broadcast{.comm = &comm,
                                                       .number = comm.next_number++,
                                                       .send = static_cast<const std::byte*>(send),
                                                       .receive = static_cast<std::byte*>(receive),
                                                       .bytes = count,
                                                       .root = root,
                                                       .line = &line,
                                                       .never = take(late_broadcasts)});
  if (comm.posting->never) comm.late_error = Code::kRemoteError;
  begin(comm, Comm::Phase::kPosting);
  return Code::kInProgress;
}

Code FakeNccl::State::poll(Comm& comm) {
  using Phase = Comm::Phase;
  if (comm.error != Code::kSuccess) return comm.error;
  if (comm.phase != Phase::kPosting) comm.error = std::exchange(comm.late_error, Code::kSuccess);
  if (comm.error != Code::kSuccess || !comm.in_progress()) return comm.error;
  if (comm.polls_left > 0) --comm.polls_left;
  if (comm.polls_left > 0) return Code::kInProgress;
  if (comm.next_error != Code::kSuccess) return comm.error = comm.next_error;
  if (comm.phase == Phase::kInit) {
    if (!comm.group->complete() || Clock::now() < comm.group->ready_at) return Code::kInProgress;
    comm.phase = Phase::kReady;
  } else if (comm.phase == Phase::kPosting) {
    comm.phase = Phase::kReady;
    const std::shared_ptr<Broadcast> posting = std::exchange(comm.posting, nullptr);
    comm.posted.emplace(posting->number, posting);
    put(*posting->line, {nullptr, posting});
  } else if (comm.phase == Phase::kFinalizing) {
    if (!comm.posted.empty()) return Code::kInProgress;
    comm.phase = Phase::kFinalized;
  } else {
    comm.phase = Phase::kRevoked;
  }
  return Code::kSuccess;
}

Code FakeNccl::State::abort(Comm& comm, std::unique_lock<std::mutex>& lock) {
  if (comm.phase == Comm::Phase::kGone)
    return misuse(Code::kInvalidArgument, "abort of ", comm.name, ", which is destroyed or aborted");
  if ((!hanging_rank || *hanging_rank == comm.rank) && take(hanging_aborts)) {
    const int generation = waits_of_hung;
    ++hung;
    changed.notify_all();
    changed.wait(lock, [&] { return waits_of_hung != generation; });
    --hung;
    if (comm.phase == Comm::Phase::kGone)
      return misuse(Code::kInvalidArgument, "abort of ", comm.name, " while another one hung");
  }
  end_broadcasts(comm);
  comm.phase = Comm::Phase::kGone;
  ++aborts;
  changed.notify_all();
  return Code::kSuccess;
}

Code FakeNccl::State::destroy(Comm& comm) {
  if (const Code code = enter(comm, "destroy"); code != Code::kSuccess) return code;
  if (!comm.posted.empty())
    return misuse(Code::kInvalidUsage, "destroy of ", comm.name, ", which would block for its broadcasts");
  comm.phase = Comm::Phase::kGone;
  return Code::kSuccess;
}

}  // namespace bascule::test
