// Looking at the slots of a sender that is alive: what it says of each, and whether the bytes have the digest that it
// gave them, both of one moment.
//
// The sender's answer and the bytes are read one after the other, and the sender goes on meanwhile. So it is asked
// again once a slot is read: what was read holds if the control page still has that version then, and the state in the
// new answer is one in which a slot can hold it. Any other slot is read again.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/receiver/observation.h>
#include <bascule/receiver/status_query.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Compares a slot's bytes with the digest in slot.says, with all cores.
void check_bytes(ObservedSlot& slot, const SlotView& view, std::uint64_t bytes, absl::Duration timeout);

class SlotInspector {
 public:
  // `endpoint` outlives it.
  SlotInspector(const Scheme& scheme, const Endpoint& endpoint) : scheme_(scheme), endpoint_(endpoint) {}

  // Takes an answer in place of the one before, and reads the slots that do not hold what was read under that. True:
  // all do, and no other answer is needed. An error: the sender's memory cannot be reached.
  absl::StatusOr<bool> look(Answer answer);
  // Takes the last answer, and reads nothing: slots that do not hold what was read have changed.
  absl::Status conclude(Answer answer);

  // What the last answer says, and what was read.
  Observation seen() &&;

 private:
  absl::StatusOr<bool> look(Answer answer, bool reads);

  const Scheme& scheme_;
  const Endpoint& endpoint_;
  Observation seen_;
};

}  // namespace bascule::inline v0
