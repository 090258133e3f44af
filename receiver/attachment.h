// Attachment: what a receiver has of one epoch of a sender: its layout, the scheme's end, the control page,
// and the tensors of each slot. It lives until nothing of it is served any more, also after the sender is
// gone.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "receiver/receiver.h"
#include "transport/control_page.h"
#include "transport/layout.h"
#include "transport/messages.h"
#include "transport/scheme.h"

namespace bascule {

// The tensors of a slot, built from the layout and the slot's address.
class WeightsBuilder {
 public:
  static std::unique_ptr<const Weights> build(const Layout& layout, std::span<const std::byte> slot);
};

class Attachment {
 public:
  // Reaches what the welcome offers. `descriptors` are the scheme's and the control page (last). Prepare
  // thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> make(const Scheme& scheme, Welcome welcome,
                                                          std::vector<UniqueFd> descriptors);

  // What a worker can read of a publication, and its tensors. Prepare thread.
  struct Ready {
    SlotView view;
    const Weights* weights = nullptr;  // lives as long as the attachment
  };
  absl::StatusOr<Ready> prepare(const Publication& publication, Deadline deadline);
  void release(SlotId slot) { transport_->release(slot); }

  Epoch epoch() const { return epoch_; }
  DigestMode digest() const { return digest_; }
  const Layout& layout() const { return layout_; }
  SlotRecord record(SlotId slot) const { return control_page_.read(slot.index); }

 private:
  Epoch epoch_ = 0;
  DigestMode digest_ = DigestMode::kOn;
  Layout layout_;
  ControlPageView control_page_;
  std::unique_ptr<ReceiverTransport> transport_;
  std::map<SlotId, std::unique_ptr<const Weights>> weights_;
};

}  // namespace bascule
