// LocalVersion: a version as an engine may serve it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

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
  bool check = false;                        // make the digest in the same pass
  std::shared_ptr<const PartCheck> parts{};  // what to check in that pass otherwise; null: nothing
};

struct LocalVersion {
  std::shared_ptr<Attachment> attachment;  // keeps the slot mapped and leased; null once the whole version was copied
  Version version = 0;
  SlotId slot{};   // what the engine reads: a slot, a receive buffer or one of its sets of tensors
  SlotId lease{};  // the sender's slot that the version came from; equals `slot` if the engine reads that in place
  std::shared_ptr<const Weights> weights{};
  std::shared_ptr<const std::string> description{};  // Sender::register_model's; null if there is none
  std::shared_ptr<const void> memory{};  // the memory in which the weights lie, unless it is the engine's own
  // If it is read in place: the slot's bytes, their sealed digest, and what hands the memory on (SlotView::handle).
  std::span<const std::byte> bytes_in_place{};
  std::optional<Digest> digest{};
  std::shared_ptr<const SlotHandle> handle{};
  std::shared_ptr<const CopyAtFlip> copy{};
  Clock::time_point decided_at{};
  int device = kHost;                // where the memory that the engine reads lies
  std::optional<BytesRead> bytes{};  // for the sender's report; nullopt: not counted

  SlotId source() const { return copy ? copy->view.slot : slot; }  // the slot that the attachment returned for it
};

}  // namespace bascule::inline v0
