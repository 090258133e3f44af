// What the fleet wants done. They are carried out in their order. One that has an answer is answered by an event before
// the next is carried out, or, where a thread of its own does it, when that has come back.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/sender/fleet/events.h>
#include <bascule/sender/report.h>

namespace bascule::inline v0 {
namespace action {

// ---- to workers ----

struct Say {  // one message to all of these
  std::vector<WorkerId> to;
  Message message;
};
struct Admit {  // makes the offer and the lease pipe of a welcome, and says it; answered by Admitted
  WorkerId id = 0;
  std::vector<OfferedSlot> slots;
  Welcome welcome;
};
struct Offer {  // makes the offer of a slot that came later, and says it with its prepare; answered by Offered
  WorkerId id = 0;
  OfferedSlot slot;
  Prepare prepare;
};
struct Close {  // says why, and ends the connection: nothing is said to this worker any more
  WorkerId id = 0;
  absl::Status why;
  bool final = false;
};
struct ReadQueued {  // hears what these have sent already; answered by AllRead, behind it
  std::vector<WorkerId> from;
};

// ---- of the scheme ----

struct Deliver {  // answered by Delivered
  Ticket ticket = 0;
  Publication publication;
  OfferedSlot slot;
  std::vector<WorkerId> to;
};
struct StopDelivery {  // it is wanted no more; Delivered comes all the same
  Ticket ticket = 0;
};

// ---- of the scheme, on the storage thread ----

struct Publish {  // answered by Published
  Ticket ticket = 0;
  Publication publication;
};
struct Persist {  // answered by Persisted
  Ticket ticket = 0;
  Publication publication;
};

// ---- to the public thread ----

struct GrantSlot {  // what TakeWanted, or SlotReplaced, asked for
  absl::StatusOr<Grant> grant;
};
struct TakeAhead {  // the next version to all may be written here, without asking
  SlotId slot;
};
struct DropSlot {  // it left the ring, and nobody reads it: its memory may go
  SlotId slot;
};
struct MayWrite {  // single copy: every reader has yielded
  Version version = 0;
};
struct EndLoan {  // single copy: it is out for too long; answered by LoanEnded
  Version version = 0;
};
struct Settle {
  Version version = 0;
  absl::StatusOr<SendReport> report;
};
struct NumberAbove {  // versions: a worker has this one
  Version version = 0;
};

// ---- of time, and for a person ----

struct WakeAt {  // in place of what was asked for before; answered by Tick
  Clock::time_point at;
};
struct KeepAwake {  // while bytes move that a thread which sleeps would be late for
  bool on = false;
};
struct Log {
  std::string line;
};

}  // namespace action

using Action = std::variant<action::Say, action::Admit, action::Offer, action::Close, action::ReadQueued,
                            action::Deliver, action::StopDelivery, action::Publish, action::Persist, action::GrantSlot,
                            action::TakeAhead, action::DropSlot, action::MayWrite, action::EndLoan, action::Settle,
                            action::NumberAbove, action::WakeAt, action::KeepAwake, action::Log>;

}  // namespace bascule::inline v0
