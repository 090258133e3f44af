// Inspects the slots of a live sender: the status that it reports for each, and whether the bytes have the reported
// digest, both at the same moment.
//
// The sender's answer and the bytes are read one after the other, while the sender keeps working. So the sender is
// asked again after a slot was read. The result is valid if the control page still has the version that was read, and a
// slot in the newly reported state can hold that version. Otherwise the slot is read again.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/kernels/control_group.h>
#include <bascule/receiver/observation.h>
#include <bascule/receiver/slot_reader.h>
#include <bascule/receiver/status_query.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Reads a slot with all cores, and compares its bytes with the digest in slot.says.
void check_bytes(ObservedSlot& slot, SlotReader& reader, const SlotView& view, std::uint64_t bytes,
                 absl::Duration timeout);

class SlotInspector {
 public:
  // `endpoint` must outlive this object.
  SlotInspector(const Scheme& scheme, const Endpoint& endpoint) : scheme_(scheme), endpoint_(endpoint) {}

  // Takes a new answer, and reads the slots whose earlier result this answer does not confirm. Returns true if it
  // confirms all, so that no other answer is needed; an error if the sender's memory cannot be reached.
  absl::StatusOr<bool> look(Answer answer);
  // Takes the last answer, and reads nothing: slots whose result it does not confirm have changed.
  absl::Status conclude(Answer answer);

  // The last answer, and the results.
  Observation seen() &&;

 private:
  absl::StatusOr<bool> look(Answer answer, bool reads);

  const Scheme& scheme_;
  const Endpoint& endpoint_;
  SlotReader reader_{kernels::usable_cores()};
  Observation seen_;
};

}  // namespace bascule::inline v0
