// Roster: the connected workers, by number, name, group and instance, and what is known about earlier ones. Pure
// bookkeeping. Lookups do not slow down with the number of workers.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/fleet/events.h>
#include <bascule/transport/recent.h>

namespace bascule::inline v0 {

// One worker as the sender knows it, from its greeting to its eviction.
struct Member {
  // parked ──register_model, whole group──▶ admitted ──slots exist──▶ welcoming ──offered──▶ welcomed
  enum class State { kParked, kAdmitted, kWelcoming, kWelcomed };

  WorkerId id = 0;
  Hello hello;
  ConnectionKind connection_kind = ConnectionKind::kUnixSocket;
  Version serving = 0;                          // its version of this epoch, as its hello and then its acks report
  Version before = 0;                           // its version of another epoch: it may only be sent higher numbers
  Version may_claim = 0;                        // the highest version that it may claim to have
  bool owed = true;                             // it is due the newest version: no send left it out
  bool departing = false;                       // it was evicted or refused, and Departures ends it
  int failures = 0;                             // versions in a row that it could not prepare
  std::optional<BytesRead> bytes{};             // of the version that it prepared last
  std::optional<SlotId> releasing;              // the slot of an aborted version, until the worker releases it
  std::set<std::uint32_t> knows;                // slots that it was offered, by index
  std::map<std::uint32_t, LeaseNumber> leases;  // leases begun over its connection, by slot index

  const std::string& name() const { return hello.worker; }
  const std::string& group() const { return hello.group; }
  // Over TCP a worker reads none of our memory, and its leases end with its membership. Its claimed instance is not
  // used, so that no peer on another host can end a lease of this host.
  Holder holder() const { return connection_kind == ConnectionKind::kTcp ? id : hello.instance; }
  bool says_it_holds(SlotId slot) const;
  LeaseNumber lease_on(SlotId slot) const;  // 0 if it was claimed in the greeting, or there is none

  // Only Roster changes these, since it counts them.
  State state() const { return state_; }
  std::optional<Ticket> catch_up() const { return catch_up_; }  // shared by the ranks of a group
  bool copies_behind() const { return copies_behind_; }         // copies behind the writer, by its last report
  bool welcomed() const { return state_ == State::kWelcomed; }
  // Whether the next version can be addressed to this worker.
  bool addressable() const { return state_ != State::kParked && !catch_up_; }

 private:
  friend class Roster;
  State state_ = State::kParked;
  std::optional<Ticket> catch_up_;
  bool copies_behind_ = false;
};

class Roster {
 public:
  explicit Roster(Epoch epoch) : epoch_(epoch) {}

  // check() returns OK if the hello is acceptable: known protocol, no newer sender seen, device not lost. check_name()
  // then returns OK if its name, group and rank are free.
  absl::Status check(const Hello& hello, ConnectionKind kind) const;
  absl::Status check_name(const Hello& hello) const;

  Member& add(WorkerId id, Hello hello, ConnectionKind kind = ConnectionKind::kUnixSocket);  // parked; ids grow
  void remove(WorkerId id) noexcept;
  void move(Member& member, Member::State state);
  void set_catch_up(Member& member, std::optional<Ticket> ticket);
  void set_copies_behind(Member& member, bool copies);

  Member* find(WorkerId id);
  const Member* find(WorkerId id) const;
  Member* named(const std::string& name);
  const Member* named(const std::string& name) const;
  Member* welcomed(Holder holder);
  bool connected(Holder holder) const;                // as a member in any state
  bool connected_beside(const Member& member) const;  // whether another member has its holder
  std::vector<Member*> group(const std::string& name);
  std::vector<const Member*> group(const std::string& name) const;
  std::vector<Member*> ranks_of(Member& member);  // its group's ranks that have greeted; without a group, itself
  // Whether `version` is above all versions of another epoch that the worker and the other ranks of its group have. It
  // may be lower if sender.lock was lost, since this sender then did not know those numbers.
  bool is_newer_for(Member& member, Version version);
  bool catches_up(Member& member);  // true also if a rank of its group does: a group flips together
  const std::map<WorkerId, Member>& members() const { return members_; }  // in the order of arrival
  std::map<WorkerId, Member>& members() { return members_; }

  // Returns the welcomed members that `names` denote; all of them if `names` is empty. Returns NOT_FOUND if no worker
  // or group has one of the names, and INVALID_ARGUMENT if a name is a single rank of a group.
  absl::StatusOr<std::vector<WorkerId>> addressed(const std::vector<std::string>& names) const;
  // Like addressed(), but for use after a grant: omits members that have left since.
  std::vector<WorkerId> still_addressed(const std::vector<std::string>& names) const;

  std::size_t addressable() const { return addressable_; }
  bool copied_behind() const { return copying_ > 0; }
  std::vector<std::string> addressable_names() const;

  // ---- including workers that are gone ----

  // Names of holders, for texts. An instance is known from its welcome until its leases end.
  struct KnownHolder {
    std::string worker;
    std::string left_running;  // its process has ended, and these have its leases: "pid 71 (python3)"
  };
  void know(const Member& member) { known_holders_[member.holder()] = {.worker = member.name(), .left_running = {}}; }
  void forget(Holder holder) { known_holders_.erase(holder); }
  void left_running(Holder holder, std::string who);
  std::string name_of(Holder holder) const;  // "engine-0", or "pid 71 (python3) of the dead worker engine-0"
  const std::map<Holder, KnownHolder>& known_holders() const { return known_holders_; }

  // Workers that were evicted for failing, and why; recorded until they serve again.
  void poisoned(const std::string& name, std::string_view why) { poisoned_.set(name) = why; }
  void mended(const std::string& name);
  const Recent<std::string>& poisoned() const { return poisoned_; }
  std::string poisoned_text() const;  // "engine-0 is poisoned: …", for at most four workers; empty if none is
  // Workers that the scheme gave up must stay away for a second, and twice as long each time, up to a minute, until
  // they have acknowledged a version.
  void pause(const std::string& name, Clock::time_point now);
  absl::Status check_pause(const std::string& name, Clock::time_point now) const;
  // Workers whose device is lost; recorded until another instance of the worker is welcomed.
  void lost(const Member& member) { lost_.set(member.name()) = {member.connection_kind, member.hello.instance}; }
  void found(const std::string& name) { lost_.erase(name); }

 private:
  template <typename Change>
  void change(Member& member, Change change);

  const Epoch epoch_;
  std::map<WorkerId, Member> members_;
  std::map<std::string, WorkerId, std::less<>> names_;
  std::map<std::string, std::set<WorkerId>, std::less<>> groups_;
  std::set<std::pair<Holder, WorkerId>> holders_;
  std::size_t addressable_ = 0, copying_ = 0;
  std::map<Holder, KnownHolder> known_holders_;
  Recent<std::string> poisoned_;
  Recent<std::pair<ConnectionKind, std::uint64_t>> lost_;  // instances
  struct Pause {
    Clock::duration length{};
    Clock::time_point until;
  };
  Recent<Pause> pauses_;
};

}  // namespace bascule::inline v0
