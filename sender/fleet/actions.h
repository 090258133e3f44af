// The fleet's actions, carried out in order. Some actions are answered by an event, which comes before the next action
// is carried out or, if another thread does the work, once that work is done.
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
struct Admit {  // makes the offer and the lease pipe of a welcome, and sends it; answered by Admitted
  WorkerId id = 0;
  std::vector<OfferedSlot> slots;
  Welcome welcome;
};
struct Offer {  // makes the offer of a slot made later, and sends it with its prepare; answered by Offered
  WorkerId id = 0;
  OfferedSlot slot;
  Prepare prepare;
};
struct Close {  // sends the reason, and ends the connection: this worker gets no further messages
  WorkerId id = 0;
  absl::Status why;
  bool final = false;
};
struct CloseLeases {  // closes the lease pipes of a holder that is not a member; no HolderGone comes for it
  Holder holder = 0;
};
struct ReadQueued {  // handles the messages that these workers have already sent; answered by AllRead after that
  std::vector<WorkerId> from;
};

// ---- the scheme ----

struct Deliver {  // answered by Delivered
  Ticket ticket = 0;
  Publication publication;
  OfferedSlot slot;
  std::vector<WorkerId> to;
};
struct StopDelivery {  // the delivery is no longer needed; Delivered still comes
  Ticket ticket = 0;
};

// ---- the scheme, on the storage thread ----

struct Publish {  // answered by Published
  Ticket ticket = 0;
  Publication publication;
};
struct Persist {  // answered by Persisted
  Ticket ticket = 0;
  Publication publication;
};

// ---- to the public thread ----

struct GrantSlot {  // grants the slot for TakeWanted or SlotReplaced
  absl::StatusOr<Grant> grant;
};
struct TakeAhead {  // the public thread may write the next version to all workers into this slot without asking
  SlotId slot;
};
struct DropSlot {  // the slot left the ring, and has no readers: its memory may be freed
  SlotId slot;
};
struct MayWrite {  // single copy: every reader has yielded
  Version version = 0;
};
struct EndLoan {  // single copy: the loan lasts too long; answered by LoanEnded
  Version version = 0;
};
struct Settle {
  Version version = 0;
  absl::StatusOr<SendReport> report;
};
struct NumberAbove {  // a worker reports this version, so later versions must get higher numbers
  Version version = 0;
};

// ---- time, and logs ----

struct WakeAt {  // replaces an earlier one; answered by Tick
  Clock::time_point at;
};
struct KeepAwake {  // keeps the thread awake while bytes move, because a sleeping thread would react late
  bool on = false;
};
struct Log {
  std::string line;
  bool is_warning = false;  // something went wrong
  bool by_peer = false;     // a peer can cause it again and again: the log has a limit for it (LogLimit)
};

}  // namespace action

using Action = std::variant<action::Say, action::Admit, action::Offer, action::Close, action::CloseLeases,
                            action::ReadQueued, action::Deliver, action::StopDelivery, action::Publish, action::Persist,
                            action::GrantSlot, action::TakeAhead, action::DropSlot, action::MayWrite, action::EndLoan,
                            action::Settle, action::NumberAbove, action::WakeAt, action::KeepAwake, action::Log>;

}  // namespace bascule::inline v0
