// A FleetWorld whose workers and public thread follow a list of numbers, and which checks the invariants.
#pragma once

#include "sender/fleet/world.h"  // first

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace bascule::test {

class RandomWorld : private FleetWorld {
 public:
  struct Step {
    std::uint32_t what = 0, which = 0;
    std::optional<Message> says{};  // instead: the worker that keeps to nothing says this
  };
  explicit RandomWorld(std::uint64_t seed);  // which chooses the endpoint's options and the scheme

  std::string run(const std::vector<Step>& steps);  // what is wrong; empty if nothing is
  const std::string& trace() const { return trace_; }
  std::uint64_t events() const { return events_; }

 private:
  // One worker's process. It reads a slot until it releases that or is gone, connected or not.
  struct Process {
    std::string name{}, group{};
    std::uint32_t rank = 0;
    Holder instance = 0;
    bool rogue = false;
    bool aside = false;  // single copy: it waits for the writer
    std::optional<WorkerId> connection{};
    Version serving = 0;
    std::optional<SlotId> serves{};
    std::map<SlotId, Version> reads{};       // including what it serves
    std::map<SlotId, LeaseNumber> leases{};  // begun over this connection
    std::optional<Prepare> preparing{};
  };
  enum class Writer { kIdle, kWaits, kGranted, kYielding, kWrites, kSealed };

  void carry_out(Action& action) override;
  void tell_and_look(Event event);
  void step(Step step);
  void worker_step(Process& process, std::uint32_t what);
  void writer_step(std::uint32_t what);
  void others_step(std::uint32_t what);
  void connect(Process& process, std::uint32_t what);
  void hear_next(Process& process, std::uint32_t what);
  void hear(Process& process, const Message& message, std::uint32_t what);
  void take(Process& process, Version version);  // flips, and says so
  void flip(Process& process, Version version);
  void speak(Process& process, Message message);
  void talk_nonsense(Process& process, std::uint32_t what);
  void say_as_rogue(Message message);
  void release_one(Process& process);
  void lose_connection(Process& process);
  void die(Process& process, bool pipe_first);
  void follow_writer();
  void expect(bool holds, std::string_view what);
  void expect_unread(SlotId slot);
  void expect_whole_groups(const action::Say& say, Version version);
  void look();
  void finish();

  bool single_copy() const { return slots == 1; }

  std::vector<Process> processes_;
  std::map<Holder, Process> dead_;  // their lease pipes have not hung up yet: their children may still read
  Holder next_instance_ = 100;
  std::map<std::string, Version>
      committed_;  // by worker of a group: the version that it was told to flip to, or came with
  std::set<Version> aborted_;

  Writer writer_ = Writer::kIdle;
  Grant grant_;
  std::optional<SlotId> written_;
  Version version_ = 0, published_ = 0;

  std::string wrong_, trace_;
  std::uint64_t events_ = 0;
};

}  // namespace bascule::test
