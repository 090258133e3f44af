// The circles of a sender whose workers, and whose own end, do what a list of numbers says, and that looks whether what
// must always hold does. The communicators are a model of NCCL's: an init is done once all ranks have called; a
// broadcast moves once all ranks have posted theirs, which are paired by their order; a rank that is gone stops it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/schemes/nccl/circles.h>

namespace bascule::inline v0::nccl {

class CirclesWorld {
 public:
  struct Step {
    std::uint32_t what = 0, which = 0;
  };
  explicit CirclesWorld(std::uint64_t seed);  // which chooses how many faults come

  std::string run(const std::vector<Step>& steps);  // what is wrong; empty: nothing
  const std::string& trace() const { return trace_; }
  std::uint64_t events() const { return events_; }

 private:
  static constexpr std::uint64_t kPiece = 10, kBytes = 47;

  struct Posted {
    std::uint64_t number = 0, from = 0;  // number 0: it carries nothing
    bool operator==(const Posted&) const = default;
  };
  struct Rank {  // in a communicator
    bool joined = false, made = false, broken = false, gone = false;
    std::vector<Posted> posted{};
    std::size_t at = 0;          // the one under way
    std::uint64_t progress = 0;  // of it
  };
  struct Fabric {  // a communicator; rank 0 is the sender's
    std::vector<WorkerId> workers{};
    std::map<WorkerId, Rank> ranks{};  // 0: the sender
    std::set<WorkerId> heard_made{}, heard_dropped{};
    bool own_made = false, left = false, hangs = false;
  };
  struct Worker {
    bool silent = false, given_up = false;
    std::deque<Word> inbox{}, outbox{};
    std::deque<Word> receives{};            // deliveries behind the one that comes
    std::optional<Word> coming{};           // its deliver word
    std::uint64_t there = 0;                // a prefix of it
    std::map<std::uint64_t, Word> early{};  // said of deliveries that have not begun
  };
  struct Delivery {
    std::set<WorkerId> workers{}, got{}, refused{};
    std::map<WorkerId, CircleId> told{};  // where it was told to take part last
    bool written = false, stopped = false, ran_out = false, done = false;
  };

  void tell(Event event);
  void carry_out(Action& action);
  void step(Step step);
  void join();
  void remove(WorkerId id);
  void want(std::uint32_t which);
  void stop(std::uint32_t which);
  void pass(Clock::duration time);
  void fault(std::uint32_t what, std::uint32_t which);
  bool worker_turn(WorkerId id, bool fails);
  bool hear_worker(WorkerId id);
  bool own_turn(CircleId circle);
  bool move(CircleId circle, WorkerId rank);
  void hear(WorkerId id, const Word& word, bool fails);
  void take_part(WorkerId id, const Word& word);
  void refuse(WorkerId id, const Word& word);
  void begin_receives(WorkerId id);
  void post_own(CircleId circle, const Posted& posted);
  void sent(CircleId circle, const Posted& posted, absl::Status status);
  void came(WorkerId rank, CircleId circle, const Posted& posted);
  void drop(WorkerId id, CircleId circle);
  bool turn_all(bool removes);  // everybody takes a turn; false: nothing happened
  void break_a_rank(WorkerId id);
  void settle(std::string_view what);
  void finish();
  void expect(bool holds, std::string_view what);
  bool is_busy(WorkerId id) const;

  const CircleLimits limits_;
  const std::uint64_t faults_;  // in 64
  Circles circles_;
  Clock::time_point now_{};
  std::optional<Clock::time_point> wakes_at_;
  WorkerId next_worker_ = 1;
  std::uint64_t next_delivery_ = 1;
  std::map<WorkerId, Worker> workers_;
  std::map<CircleId, Fabric> fabrics_;
  std::map<CircleId, std::deque<Event>> own_;  // what the sender's end has to say
  std::map<std::uint64_t, Delivery> deliveries_;
  std::set<WorkerId> to_remove_;
  std::string wrong_, trace_;
  std::uint64_t events_ = 0;
};

}  // namespace bascule::inline v0::nccl
