// LocalVersion: a version as an engine may serve it.
#pragma once

#include <memory>

#include <bascule/receiver/attachment.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/tensor.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

// What the engine's thread copies before it may serve a version.
struct CopyAtFlip {
  Publication publication;
  SlotView view;
  bool check = false;  // make the digest in the same pass
};

struct LocalVersion {
  std::shared_ptr<Attachment> attachment;  // keeps its slot mapped and leased; null once all of it was copied
  Version version = 0;
  SlotId slot{};   // what the engine reads: a slot, a receive buffer or one of its sets of tensors
  SlotId lease{};  // the sender's slot from which it came; equals `slot` if the engine reads that in place
  std::shared_ptr<const Weights> weights{};
  std::shared_ptr<const void> memory{};  // in which the weights lie, unless that is the engine's own
  std::shared_ptr<const CopyAtFlip> copy{};
  Clock::time_point decided_at{};
  int device = kHost;  // of the memory that the engine reads

  SlotId source() const { return copy ? copy->view.slot : slot; }  // the slot that the attachment returned for it
};

}  // namespace bascule::inline v0
