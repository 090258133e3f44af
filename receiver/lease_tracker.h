// LeaseTracker: what a worker holds of its sender's slots, and when each lease ends. Pure bookkeeping: no sockets, no
// threads, no clocks. The session's I/O thread tells it what happened; it answers what may be said and done now.
//
//   a version is   from                                    until                                         then
//   incoming       prepare                                 decided                                       decided
//                                                          abort, another prepare, a lost connection     departing
//   offered        prepared, or found (followers)          rank 0's word: the engine flips to it         serving
//                                                          rank 0 passed it over, or it was withdrawn    departing
//                                                          withdrawn, and the engine has it              taken
//   decided        decided, or found                       the engine flips to it                        serving
//                                                          another is decided before the engine has it   departing
//                                                          another is decided, and the engine has it     taken
//   taken          the engine has it, as above             the engine flips to it                        serving
//                                                          the flip fails                                departing
//   serving        the engine has flipped to it            the engine flips to another                   departing
//   draining       left, and a device may still read it    the device has passed it                      freed
//   departing      left                                    the prepare thread has given its memory back  freed
//
// Followers hold a version as incoming and as offered, until it is decided. Where flips copy, a version leaves as it
// flips.
//
// A lease is on a slot. It begins with prepare, and `released` ends it, once, when the last version under it is gone.
// On a new connection the greeting says which leases go on: a message about the others would end a lease that began
// since. And a message names the lease that it ends, since it may cross the prepare that begins the next one.
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

  // A version in flight to here.
  struct Incoming {
    Publication publication;
    bool single_copy = false;  // the engine reads its slot, and yields
    bool ready = false;        // room was made, or the engine was asked to yield
    bool yielded = false;
    bool prepared = false;
  };
  // A version that the worker leaves. The prepare thread gives its memory back and unmaps what nothing else holds; then
  // given_back(number).
  struct Departing {
    std::uint64_t number = 0;
    LocalVersion local{};            // of an incoming one: no attachment, the prepare thread knows what it reached
    bool last_of_attachment = true;  // what it is mapped by may go with it
  };
  struct Freed {
    std::optional<Released> released{};      // to be said
    bool unmap = false;                      // the sender uses that slot no more: all but wanted() may be unmapped
    std::shared_ptr<Attachment> attachment;  // for the prepare thread to let go
  };
  struct Claim {
    Epoch epoch = 0;
    Version serving = 0;
    std::vector<HeldSlot> held{};
  };

  // ---- the connection ----

  // What a greeting says. Words of leases go over the new connection from now on.
  Claim greet();
  void welcome(Epoch epoch, std::vector<std::uint32_t> slots);
  // The connection is gone. drop() comes first.
  void hang_up() { ++connection_; }
  // The device is lost: what is held stays as it is, no lease counts any more, and nothing is released.
  void lose() { lost_ = true; }

  // ---- a version's path ----

  // What stands against an epoch, and a version of it: a newer one that is held. Null: nothing.
  const LocalVersion* against(Epoch epoch, std::optional<Version> version) const;
  // Begins a lease. drop() comes first. True: the sender has other `slots` than before; all but wanted() may be
  // unmapped.
  bool prepare(const Publication& publication, LeaseNumber lease, std::vector<std::uint32_t> slots);
  Incoming* incoming() { return incoming_ ? &*incoming_ : nullptr; }
  const Incoming* incoming() const { return incoming_ ? &*incoming_ : nullptr; }
  bool has_room() const;                 // for the incoming version: a set of tensors to copy to
  std::vector<Version> offered() const;  // those at the gate
  // To be left at the gate. Where one of its number was offered before, `replaces` says whether that was still there;
  // else the engine has it.
  std::optional<Departing> offer(LocalVersion local, bool replaces);
  std::optional<Departing> withdrawn(Version version, bool taken);  // from the gate; `taken`: the engine has it
  // The incoming version is held now as offered or decided. Where it is neither (passed over, or copied ahead)
  // drop() ends it.
  void arrive() { incoming_.reset(); }
  bool offers(Version version) const;
  // Decided; the gate had `skipped`, which the engine did not take.
  std::optional<Departing> decide(LocalVersion local, std::optional<LocalVersion> skipped);
  // The incoming version will not be served. Returns nullopt if there is none.
  std::optional<Departing> drop();
  // What is served is in doubt: a single copy that the sender may have written, or a version that the engine still
  // loads. A greeting claims nothing, until it is settled or another version is served.
  void doubt() { in_doubt_ = true; }
  void settle_doubt() { in_doubt_ = false; }

  // ---- what the engine did ----

  // `late`: its device may still read what it served before.
  std::optional<Departing> flipped(const LocalVersion& now, bool late);
  std::optional<Departing> not_flipped(LocalVersion next);      // serves on
  std::optional<Departing> torn(LocalVersion next, bool late);  // serves nothing
  std::optional<Departing> not_loaded(bool late);               // what it serves; likewise
  std::optional<Departing> passed_over(LocalVersion offered);

  // ---- what the prepare thread did ----

  Freed given_back(std::uint64_t number);
  // A version that was found, and is not wanted.
  static Departing unwanted(LocalVersion found) { return {.number = 0, .local = std::move(found)}; }

  // ---- questions ----

  const LocalVersion* serving() const { return find(State::kServing); }  // until the next event
  Version served() const { return serving() != nullptr ? serving()->version : 0; }
  bool serves(const LocalVersion& local) const;  // told again of it
  bool holds_nothing() const;                    // to serve, now or later
  Version newest() const;                        // of what is or may be served
  std::set<SlotId> wanted() const;               // slots that must stay mapped
  std::vector<HeldSlot> held() const;            // the leases
  std::vector<std::shared_ptr<Attachment>> attachments() const;
  std::set<int> devices() const;  // that read what is or was served
  std::uint64_t connection() const { return connection_; }
  bool lost() const { return lost_; }

 private:
  enum class State { kServing, kTaken, kDecided, kOffered, kDraining, kDeparting };
  struct Entry {
    State state;
    LocalVersion local;  // of one that leaves: version and lease
    std::uint64_t number = 0;
    std::uint64_t connection = 0;  // over which the sender knows of its lease
  };
  const LocalVersion* find(State state) const;
  void remove_taken(Version version);
  std::optional<LocalVersion> remove_serving();
  std::optional<Departing> leave(LocalVersion local, bool late = false);  // none: all of it was copied
  Departing begin_departing(LocalVersion local, bool late);
  bool is_leased(SlotId slot) const;

  Takes takes_;
  std::vector<Entry> entries_;
  std::optional<Incoming> incoming_;
  std::map<SlotId, LeaseNumber> begun_;  // over this connection, and not released
  Epoch epoch_ = 0;                      // of the sender that welcomed this worker last
  std::vector<std::uint32_t> slots_;     // that it has
  std::uint64_t connection_ = 0, last_number_ = 0;
  bool in_doubt_ = false;
  bool lost_ = false;
};

}  // namespace bascule::inline v0
