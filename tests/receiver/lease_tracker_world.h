// A worker's bookkeeping of leases in a world that its seed makes random. The world is the sender, the engine, its
// device and the prepare thread; each does what it may, in any order, and messages cross on the wire.
#pragma once

#include <bascule/receiver/lease_tracker.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <bascule/receiver/flip_gate.h>

namespace bascule::test {

using Takes = LeaseTracker::Takes;

struct Kind {
  std::string name;
  Takes takes = Takes::kInPlace;
  bool follower = false;
  bool own_memory = false;  // versions are read in the scheme's receive buffers, not in slots
  bool device = false;      // its stream may be late
};

// A version that the engine, its device or the gate may read.
struct Reader {
  LocalVersion local;
  bool passed = false;  // by a device
};

class World {
 public:
  World(std::uint64_t seed, const Kind& kind)
      : kind_(kind), random_(seed), tracker_(kind.takes), attachment_(std::make_shared<Attachment>()) {}

  void step();

  // Ends everything under way and begins nothing new: each lease is then held by something, or was released once.
  void settle();

  void check();

 private:
  struct Round {
    Version version = 0;
    std::uint32_t slot = 0;
    bool ready = false, sealed = false, prepared = false;
  };
  struct Prepared {  // what the prepare thread makes of a version
    LocalVersion local{};
    std::optional<SlotId> reached{};
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(std::uint64_t times) { return below(times) == 0; }

  // ---- the truth: which versions are read ----

  std::vector<LocalVersion> readers() const;
  static std::set<SlotId> leases_of(const std::vector<LocalVersion>& all);
  std::set<SlotId> held() const;
  std::set<SlotId> leased() const;

  // ---- the sender ----

  void sender_acts();
  void begin(Round round);
  // Advances as far as the worker's answers allow.
  void finish_round();
  void abort_round();
  // `meant`: the lease that the worker knew. There is another one if its prepare crossed the message; the sender must
  // tell that from the message alone.
  void on_released(const Released& released, LeaseNumber meant);

  void connect();
  void hang_up();
  void say(std::function<void()> heard);

  // ---- the worker's I/O thread, as Session has it ----

  void say_ack(Version version);
  void on_prepare(Version version, std::uint32_t slot, LeaseNumber lease, const std::vector<std::uint32_t>& slots);
  void say_ready();
  void on_sealed(Version version);
  void on_prepared(Version version, bool ok);
  void offer(const LocalVersion& local);
  void on_decided(Version version);
  void decide(const LocalVersion& local);
  void on_abort(Version version);
  void drop_incoming() { give_back(tracker_.drop(), std::exchange(prepared_, nullptr)); }
  void withdraw(Version version);
  void give_back(std::optional<LeaseTracker::Departing> departing, std::shared_ptr<Prepared> prepared = nullptr,
                 std::shared_ptr<Reader> late = nullptr);
  void wait_for(LeaseTracker::Departing departing, std::shared_ptr<Reader> late);
  void on_given_back(std::uint64_t number);

  // ---- the prepare thread ----

  bool prepare(const Publication& publication, Prepared& prepared);
  LocalVersion local_of(const Publication& publication, SlotId memory) const;
  void give_back(SlotId memory);
  void keep_only();
  void look();

  // ---- the engine, and its device ----

  void engine_acts();
  void finish_flip();
  std::shared_ptr<Reader> later(LocalVersion local);
  void device_passes();

  // ---- steps of the world ----

  void hear_at_the_worker();
  void hear_at_the_sender() { pop(to_sender_); }
  void one_job() { pop(jobs_); }
  void one_post() { pop(posts_); }
  static void pop(std::deque<std::function<void()>>& from);
  void seldom();

  const Kind kind_;
  std::mt19937_64 random_;
  const std::uint64_t calm_ = std::uint64_t{4} << below(5);  // how seldom a connection is lost
  LeaseTracker tracker_;
  FlipGate gate_;
  std::shared_ptr<Prepared> prepared_;
  std::map<SlotId, LeaseNumber> meant_;  // the leases that the worker knows
  std::deque<std::function<void()>> to_worker_, to_sender_, jobs_, posts_;
  bool lost_ = false, looking_ = false, cut_ = false;

  // The sender's.
  Epoch epoch_ = 1;
  Version last_version_ = 0, serving_ = 0;
  std::vector<std::uint32_t> slots_ = {0, 1, 2};
  std::uint32_t next_slot_ = 3;
  struct Lease {
    LeaseNumber told = 0;   // to the worker; 0: it claimed this one
    LeaseNumber meant = 0;  // unique
  };
  std::map<SlotId, Lease> leases_;
  LeaseNumber last_lease_ = 0;
  std::set<SlotId> releasing_;  // of aborted versions
  std::optional<Round> round_, published_;
  bool connected_ = false, unanswered_ = false;

  // The prepare thread's.
  std::shared_ptr<Attachment> attachment_;
  Epoch attached_epoch_ = 0;
  std::map<const Attachment*, Epoch> epoch_of_;
  std::vector<std::shared_ptr<Attachment>> all_;
  std::map<SlotId, int> reached_;
  std::map<std::pair<SlotId, Version>, std::uint32_t> copies_;
  std::uint32_t next_copy_ = 0;

  // The engine's.
  std::vector<LocalVersion> at_gate_;
  std::optional<LocalVersion> taken_, served_;
  std::deque<std::shared_ptr<Reader>> device_;
  Version engine_version_ = 0, chosen_ = 0;
};

}  // namespace bascule::test
