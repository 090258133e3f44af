// The state of the fake NCCL, only for tests/support/nccl/fake_nccl*.cpp.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "support/nccl/fake_nccl.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace fake_nccl {

using nccl::Code;
using nccl::CommHandle;
using nccl::Config;
using nccl::Library;
using nccl::UniqueId;

struct Comm;
struct Line;

struct Broadcast {  // of one rank
  Comm* comm = nullptr;
  std::uint64_t number = 0;  // on its communicator
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t bytes = 0;
  int root = 0;
  Line* line = nullptr;
  bool never = false;  // a fault: it is never carried out
  bool over = false;   // carried out, or ended by an abort
};

struct Work {
  std::function<void()> run;             // null for a broadcast
  std::shared_ptr<Broadcast> broadcast;  // its communicator also holds it
};

struct Line {  // a stream
  std::deque<Work> work;
  std::uint64_t given = 0, done = 0;
  bool stalled = false, dead = false;
};

struct Group {  // of one id
  UniqueId id;
  int ranks = 0;  // 0: no rank has called
  std::map<int, Comm*> members;
  Clock::time_point ready_at;  // once all have called
  bool complete() const { return ranks != 0 && std::ssize(members) == ranks; }
};

struct Comm {
  enum class Phase { kInit, kReady, kPosting, kFinalizing, kFinalized, kRevoking, kRevoked, kGone };
  Group* group = nullptr;
  int rank = 0;
  std::string name, given_name;
  const char* users_name = nullptr;  // read as long as the communicator lives, as in the library
  Phase phase = Phase::kInit;
  Code error = Code::kSuccess;       // once set, it stays
  Code next_error = Code::kSuccess;  // comes when the call in progress would be done
  Code late_error = Code::kSuccess;  // comes one poll later
  int polls_left = 0;
  std::uint64_t next_number = 0;
  std::shared_ptr<Broadcast> posting;
  std::map<std::uint64_t, std::shared_ptr<Broadcast>> posted;  // on their streams, not over

  bool in_progress() const {
    return phase == Phase::kInit || phase == Phase::kPosting || phase == Phase::kFinalizing ||
           phase == Phase::kRevoking;
  }
};

// Returns true if the fault happens now, and counts that; `times` is how many more times it happens.
inline bool take(int& times) { return times > 0 && times-- > 0; }

}  // namespace fake_nccl

struct FakeNccl::State {
  using Broadcast = fake_nccl::Broadcast;
  using Code = nccl::Code;
  using Comm = fake_nccl::Comm;
  using CommHandle = nccl::CommHandle;
  using Config = nccl::Config;
  using Group = fake_nccl::Group;
  using Library = nccl::Library;
  using Line = fake_nccl::Line;
  using UniqueId = nccl::UniqueId;
  using Work = fake_nccl::Work;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Library library;
  int version = kVersion;
  // None of these is ever freed, so that a stale handle is only a misuse.
  std::list<Line> lines{1};  // the first one is the default stream's
  std::list<Comm> comms;
  std::list<Group> groups;
  std::uint64_t last_id = 0, first_id = 1;  // ids below `first_id` were drawn before renew()
  std::chrono::milliseconds init_delay{0};
  int failing_inits = 0, failing_broadcasts = 0, late_broadcasts = 0, failing_ids = 0, hanging_aborts = 0;
  std::optional<int> hanging_rank;  // none: any
  int hung = 0, waits_of_hung = 0;  // aborts that hang; their generation
  int broadcasts = 0, aborts = 0;
  std::vector<std::string> misuses;
  Config last_config;

  // Call all of these under the mutex.

  static Comm& comm_of(CommHandle* handle) { return *reinterpret_cast<Comm*>(handle); }
  Line& line_of(Stream stream) { return stream == nullptr ? lines.front() : *reinterpret_cast<Line*>(stream); }

  template <typename... Pieces>
  Code misuse(Code code, const Pieces&... pieces) {
    misuses.push_back(cat(pieces...));
    return code;
  }

  Group* group_of(const UniqueId& id) {
    for (Group& group : groups)
      if (group.id.bytes == id.bytes) return &group;
    return nullptr;
  }
  static std::uint64_t number_of(const Group& group) {
    std::uint64_t number = 0;
    std::memcpy(&number, group.id.bytes.data(), sizeof(number));
    return number;
  }
  template <typename Is>
  int count_ids(Is is) const {
    return static_cast<int>(
        std::ranges::count_if(groups, [&](const Group& group) { return number_of(group) >= first_id && is(group); }));
  }

  // Advances every stream as far as possible.
  void run();
  bool advance(Line& line);

  static bool is_at_head(const Broadcast& broadcast);
  // Carries the broadcast out if it is at the head of its stream at all ranks; returns true if it did.
  bool carry_out(const Broadcast& one);

  // Ends this rank's broadcasts on its stream, as an abort does.
  void end_broadcasts(Comm& comm);
  // Writes half of the root's bytes, or garbage if the root has not posted.
  static void write_half(const Broadcast& broadcast);

  // Checks the start of a call on `comm`; the call goes on if it returns kSuccess.
  Code enter(Comm& comm, const char* call);
  void begin(Comm& comm, Comm::Phase phase);

  Code init(CommHandle** handle, int ranks, const UniqueId& id, int rank, const Config* config);

  Code broadcast(const void* send, void* receive, std::size_t count, int type, int root, Comm& comm, Line& line);
  // While a broadcast is being posted, its place on the stream is open: other work put there may come before it.
  template <typename... Pieces>
  void check_order(const Line& line, const Pieces&... what) {
    for (const Comm& other : comms)
      if (other.posting && other.posting->line == &line)
        misuse(Code::kInvalidUsage, what..., " on a stream on which ", other.name, " still posts a broadcast");
  }

  Code poll(Comm& comm);
  void put(Line& line, Work work);

  Code abort(Comm& comm, std::unique_lock<std::mutex>& lock);

  Code destroy(Comm& comm);
};

}  // namespace bascule::test
