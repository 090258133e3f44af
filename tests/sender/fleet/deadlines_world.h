// A FleetWorld on an agenda: workers answer each message after a while, too late, or never, and die at any time; the
// trainer and the scheme take their time as well. It checks that each worker is judged by the limit of the step that it
// is in, when that limit ends, and that every send ends.
#pragma once

#include "sender/fleet/world.h"  // first

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::test {

class DeadlinesWorld : private FleetWorld {
 public:
  explicit DeadlinesWorld(std::uint64_t seed);  // which chooses everything

  std::string run();  // what is wrong; empty if nothing is
  const std::string& trace() const { return trace_; }
  int sends() const { return sends_; }
  // How often each text was the reason why a worker was evicted as late.
  const std::map<std::string, int>& late() const { return late_; }

 private:
  using Time = Clock::time_point;
  using Length = Clock::duration;
  // One worker, on one connection: what it was told about the version that it is being sent, and what it said.
  struct Worker {
    std::string name{}, group{};
    std::uint32_t rank = 0;
    Holder instance = 0;
    std::optional<Prepare> prepare{}, served{};
    bool to_all = false;  // the version is the one that the trainer sends, not a catch-up
    bool ready = false, sealed = false, prepared = false, decided = false, loads = false;
    bool ahead = false;  // it is decided once it is prepared
    int load_messages = 0;
    Limit limit{};  // of what it has to do next
  };
  enum class Trainer { kIdle, kWaits, kYielding, kWrites, kSealed };

  void carry_out(Action& action) override;
  void at(Time time, std::function<void()> what) { agenda_.emplace(time, std::move(what)); }
  bool happens(int percent) { return static_cast<int>(random_() % 100) < percent; }
  Length some_time();  // often nothing, often near a limit
  bool step();         // what comes next; false: nothing will

  // ---- workers ----

  void join(const Worker& like);
  void hear(WorkerId id, const Message& message);
  void hear(Worker& worker, WorkerId id, const Prepare& prepare);
  void answer(WorkerId id, std::function<void(Worker&)> what);  // later, or never, if it still waits for that
  void decide(Worker& worker, WorkerId id);                     // it knows the decision, and is prepared
  void acknowledge(WorkerId id);
  void lose(WorkerId id);  // its connection has ended; its process ends, and another may come

  // ---- the trainer and the scheme ----

  void trainer_step();
  void write(const Grant& grant);
  void seal_now();
  void look_at_delivery(const action::Deliver& deliver);
  void settle(const action::Settle& settle);

  void check_late(const Worker& worker, const absl::Status& why);
  void check_none_overstays();
  void note(std::string_view what);
  void expect(bool holds, const std::string& what);

  std::mt19937_64 random_;
  std::multimap<Time, std::function<void()>> agenda_;
  std::map<WorkerId, Worker> workers_;
  Holder next_instance_ = 100;

  Trainer trainer_ = Trainer::kIdle;
  int sends_ = 0;
  Version version_ = 0;   // being sent
  Time announced_{};      // when it began to be written
  Time changed_{};        // when a step of the round may have begun
  Limit sent_limit_{};    // of the version being sent, until the decision
  Length scheme_time_{};  // what the scheme has taken for it
  bool some_load_ = false, announcing_ = false;
  std::optional<Time> ends_by_{};
  std::map<Ticket, Version> moving_;  // deliveries of what is sent
  std::map<std::string, int> late_;
  std::string wrong_, trace_;
};

}  // namespace bascule::test
