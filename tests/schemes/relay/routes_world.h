// Routes with workers that follow their messages truthfully, in a random order, and checks of the invariants. Bytes
// move from a source's buffer to a reader's; rewriting a buffer that is read is detected.
#pragma once

#include <bascule/schemes/relay/routes.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

namespace bascule::inline v0::relay {

class RoutesWorld {
 public:
  explicit RoutesWorld(std::uint64_t seed);

  std::string run(int steps);  // returns what is wrong; empty if nothing
  std::uint64_t events() const { return events_; }

 private:
  static constexpr std::uint64_t kBytes = 5;

  struct Buffer {
    Version version = 0;
    std::uint64_t bytes = 0;
    bool shown = false, read = false;  // on the page; by the engine
    std::set<WorkerId> leases{};       // of engines that share it
  };
  struct UnderWay {  // a piece that a copy engine moves
    SourceId source = kTrainer;
    std::size_t buffer = 0;
  };
  struct Incoming {
    RelayMessage take;
    Version version = 0;
    std::optional<std::size_t> buffer{};  // nullopt: alone
    std::uint64_t arrived = 0;
    std::optional<UnderWay> piece{};
    std::optional<UnderWay> leased{};
    bool stuck = false, over = false;
  };
  struct Said {  // to a worker
    RelayMessage message;
    Version version = 0;  // of a deliver message
  };
  struct Process {
    bool member = true, in_place = false, said_how = false;
    bool to_show = false, has_shown = false;  // was told to show buffers; did
    std::string place{};
    std::deque<Said> inbox{};
    std::deque<Said> takes{};
    std::deque<RelayMessage> outbox{};
    std::map<std::uint64_t, RelayMessage> early{};
    std::optional<Incoming> incoming{};
    std::array<Buffer, 2> buffers{};
    std::set<SourceId> knows{};
    std::set<std::uint64_t> got{}, failed{};  // deliveries
  };
  struct Order {
    Version version = 0;
    std::set<WorkerId> waiting{}, open{};  // legs that have not begun, and legs that have
    std::set<WorkerId> workers{};          // that should get it
    bool stopped = false, done = false;
  };

  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  WorkerId some_member();
  void tell(const Event& event);
  void note(const Event& event);
  void carry_out(const Action& action);
  void check_source(WorkerId worker, std::uint64_t number, SourceId source);
  void check_routes();
  void step();
  void join();
  void remove(WorkerId id);
  void want();
  void stop();
  void turn(WorkerId id);
  bool hear(Process& process);
  bool begin(Process& process);
  bool go_on(WorkerId id, Process& process);
  void arrive(Process& process);
  bool ask(WorkerId id, Process& process);
  void ask_for_another(Incoming& incoming, Process& process);
  bool share(WorkerId id, Process& process);
  void end_leases(WorkerId id);
  void end(Process& process, bool got);
  bool is_free(WorkerId id) const;
  void settle();
  void expect(bool holds, std::string what);

  std::mt19937_64 random_;
  Routes routes_;
  WorkerId next_worker_ = 1;
  std::uint64_t next_number_ = 1;
  std::map<WorkerId, Process> processes_;  // including former members
  std::map<std::uint64_t, Order> orders_;
  std::map<Version, std::uint64_t> written_;                        // by the trainer
  std::map<std::pair<WorkerId, std::uint64_t>, SourceId> sources_;  // by the last message to each
  std::set<std::pair<WorkerId, WorkerId>> introduced_, unreachable_;
  std::set<std::pair<WorkerId, Version>> alone_;  // as reported to Routes
  bool settling_ = false;
  std::uint64_t events_ = 0;
  std::string wrong_;
};

}  // namespace bascule::inline v0::relay
