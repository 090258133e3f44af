// LeaseTracker: which of its sender's slots a worker holds, and when each lease ends. Pure bookkeeping: no sockets, no
// threads, no clocks. The session's I/O thread reports events to it; the calls return what may be sent and done now.
//
//   a version is   from                                    until                                         then
//   incoming       prepare                                 decided                                       decided
//                                                          abort, another prepare, a lost connection     departing
//   offered        prepared, or found (followers)          rank 0 chose it: the engine flips to it       serving
//                                                          rank 0 passed it over, or it was withdrawn    departing
//                                                          withdrawn, and the engine has it              taken
//   decided        decided, or found                       the engine flips to it                        serving
//                                                          another is decided before the engine has it   departing
//                                                          another is decided, and the engine has it     taken
//                                                          its slot may have been written (slots=1)      departing
//   taken          the engine has it, as above             the engine flips to it                        serving
//                                                          the flip fails                                departing
//   serving        the engine has flipped to it            the engine flips to another                   departing
//   draining       left, and a device may still read it    the device has passed it                      freed
//   departing      left                                    the prepare thread has given its memory back  freed
//
// Followers hold a version both as incoming and as offered, until it is decided. If flips copy, a version departs as
// soon as the engine has flipped to it.
//
// A lease is on a slot. It begins with prepare. When the last version under it is gone, one `released` ends it. On a
// new connection the greeting lists the leases that continue. For the other leases no `released` may follow, since it
// could end a lease that began later. Each `released` names its lease, since it may cross the prepare that begins the
// next one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <bascule/receiver/local_version.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/version.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

class LeaseTracker {
 public:
  // How the engine takes a version.
  enum class Takes { kInPlace, kCopyAtFlip, kCopyAhead };

  explicit LeaseTracker(Takes takes = Takes::kInPlace) : takes_(takes) {}

  // A version in flight to this worker.
  struct Incoming {
    Publication publication;
    bool single_copy = false;  // the engine reads the slot, or will read it, so it must yield
    int device = kHost;        // where the engine reads that slot
    bool ready = false;        // room was made, or the engine was asked to yield
    bool receiving = false;    // the scheme's receive() has not returned
    bool sealed = false;
    bool decided = false;  // the worker is alone: it flips once the version is prepared
    bool yielded = false;
    bool prepared = false;
  };
  // A version that the worker leaves. The prepare thread gives its memory back and unmaps what nothing else holds;
  // given_back(number) follows.
  struct Departing {
    std::uint64_t number = 0;
    LocalVersion local{};            // has no attachment if it was incoming; the prepare thread then knows the memory
    bool last_of_attachment = true;  // no other version needs its attachment
  };
  struct Freed {
    std::optional<Released> released{};      // to be sent
    bool unmap = false;                      // the sender no longer uses that slot: all but wanted() may be unmapped
    std::shared_ptr<Attachment> attachment;  // for the prepare thread to let go
  };
  struct Claim {
    Epoch epoch = 0;
    Version serving = 0;
    std::vector<HeldSlot> held{};
  };

  // After this, handling a message and what the engine does with it need no memory here. Call it before each message.
  void make_room() { entries_.reserve(entries_.size() + 16); }

  // ---- the connection ----

  // Returns what the greeting claims. After this call, messages about leases go over the new connection.
  Claim greet();
  void welcome(Epoch epoch, std::vector<std::uint32_t> slots);
  // Call it when the connection is gone, after drop().
  void hang_up() { ++connection_; }
  // Call it when the device is lost: held memory stays as it is, leases no longer count, and nothing is released.
  void lose() { lost_ = true; }

  // ---- a version's path ----

  // Returns the held version because of which `epoch`, or `version` of it, must be refused; null if there is none.
  const LocalVersion* against(Epoch epoch, std::optional<Version> version) const;
  // Begins a lease; call drop() before it. Returns true if the sender's `slots` have changed: all but wanted() may be
  // unmapped.
  bool prepare(const Publication& publication, LeaseNumber lease, std::vector<std::uint32_t> slots);
  Incoming* incoming() { return incoming_ ? &*incoming_ : nullptr; }
  const Incoming* incoming() const { return incoming_ ? &*incoming_ : nullptr; }
  bool has_room() const;  // whether the incoming version has a set of tensors to copy to
  // The offered versions that give way to the incoming one: it needs their set of tensors, or is written over them.
  std::vector<Version> giving_way() const;
  // `local` goes to the gate. If a version with its number was offered before, `replaces` tells whether that older one
  // was still at the gate; if not, the engine has it.
  std::optional<Departing> offer(LocalVersion local, bool replaces);
  std::optional<Departing> withdrawn(Version version, bool taken);  // it left the gate; `taken`: the engine has it
  // The incoming version is now held as offered or decided. If it is neither (passed over, or copied ahead), drop()
  // ends it.
  void arrive() { incoming_.reset(); }
  bool offers(Version version) const;
  // Call it when `local` is decided; `skipped` was at the gate, and the engine did not take it.
  std::optional<Departing> decide(LocalVersion local, std::optional<LocalVersion> skipped);
  // `spoiled`, if any, was decided and is no longer at the gate: its slot may have been written.
  std::optional<Departing> spoil(std::optional<LocalVersion> spoiled);
  // The incoming version will not be served. Returns nullopt if there is none.
  std::optional<Departing> drop();
  // The served version is in doubt: a single copy that the sender may have written, or a version that the engine still
  // loads. A greeting claims no version until the doubt is settled or another version is served.
  void doubt() { in_doubt_ = true; }
  void settle_doubt() { in_doubt_ = false; }

  // ---- what the engine did ----

  // `late` means that the engine's device may still read what it served before.
  std::optional<Departing> flipped(const LocalVersion& now, bool late);
  std::optional<Departing> not_flipped(LocalVersion next);      // the engine keeps serving the same version
  std::optional<Departing> torn(LocalVersion next, bool late);  // the engine serves nothing
  std::optional<Departing> not_loaded(bool late);               // ends what it served; now it serves nothing
  std::optional<Departing> passed_over(LocalVersion offered);

  // ---- what the prepare thread did ----

  Freed given_back(std::uint64_t number);
  // For a version that was found without a sender, but is not wanted.
  static Departing unwanted(LocalVersion found) { return {.number = 0, .local = std::move(found)}; }

  // ---- questions ----

  const LocalVersion* serving() const { return find(State::kServing); }  // valid until the next event
  Version served() const { return serving() != nullptr ? serving()->version : 0; }
  bool serves(const LocalVersion& local) const;  // whether the engine already serves this version
  bool holds_nothing() const;                    // whether there is no version to serve, now or later
  Version newest() const;                        // the newest version that is or may be served
  std::set<SlotId> wanted() const;               // slots that must stay mapped
  std::vector<HeldSlot> held() const;            // the leases
  std::vector<std::shared_ptr<Attachment>> attachments() const;
  std::set<int> devices() const;  // devices that may read the served version or earlier ones
  std::uint64_t connection() const { return connection_; }
  bool lost() const { return lost_; }

 private:
  enum class State { kServing, kTaken, kDecided, kOffered, kDraining, kDeparting };
  struct Entry {
    State state;
    LocalVersion local;  // if departing, only version and lease are set
    std::uint64_t number = 0;
    std::uint64_t connection = 0;  // the connection over which the sender knows the lease
  };
  const LocalVersion* find(State state) const;
  // The version that the engine reads in `publication`'s slot, or will read there, if it is another one.
  const LocalVersion* written_over_by(const Publication& publication) const;
  void remove_taken(Version version);
  std::optional<LocalVersion> remove_serving();
  std::optional<Departing> leave(LocalVersion local, bool late = false);  // nullopt if all of it was copied
  Departing begin_departing(LocalVersion local, bool late);
  bool is_leased(SlotId slot) const;

  Takes takes_;
  std::vector<Entry> entries_;
  std::optional<Incoming> incoming_;
  std::map<SlotId, LeaseNumber> begun_;  // leases that began over this connection and are not released
  Epoch epoch_ = 0;                      // the epoch of the sender that welcomed this worker last
  std::vector<std::uint32_t> slots_;     // that sender's slots
  std::uint64_t connection_ = 0, last_number_ = 0;
  bool in_doubt_ = false;
  bool lost_ = false;
};

}  // namespace bascule::inline v0
