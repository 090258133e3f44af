// Attachment: what a receiver has of one epoch of a sender: its layout, the scheme's end, the control page,
// and the tensors of each slot. It lives until nothing of it is served any more, also after the sender is
// gone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include <bascule/receiver/fusion.h>
#include <bascule/receiver/weights.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/device.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

// The tensors of a slot, built from the layout and the slot's address; or of a set of the engine's own.
class WeightsBuilder {
 public:
  static std::shared_ptr<const Weights> build(const Layout& layout, const SlotView& slot,
                                              std::vector<TensorView> fused);
  // Of targets that outlive it, at other addresses than their own.
  static std::shared_ptr<const Weights> build(std::span<const TargetTensor> targets,
                                              std::span<std::byte* const> addresses);
};

// The receiver's end of `scheme`, for an engine that reads on endpoint.device: where that is a device and the slots lie
// elsewhere, with receive buffers there, `kept` from the beginning.
std::unique_ptr<ReceiverTransport> make_transport(const Scheme& scheme, const Endpoint& endpoint, std::size_t kept);

// How a worker takes a layout, found out before anything is mapped.
struct ReadPlan {
  // Receive buffers on a device: the one that tensors are made of, or one that is read and one for the next version.
  std::size_t buffers_kept() const { return copy_plan ? 1 : 2; }

  std::optional<Plan> copy_plan{};  // of one that copies
  Fusion fusion{};                  // of one that reads in place
};

class Attachment {
 public:
  // Reaches what the welcome offers. `descriptors` are the scheme's and the control page (last); over TCP there are
  // none. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> make(const Scheme& scheme, const Endpoint& endpoint,
                                                          Welcome welcome, std::vector<UniqueFd> descriptors,
                                                          ReadPlan read_plan = {});

  // The same after a lost connection: slots that it knows stay where they are. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> again(const std::shared_ptr<Attachment>& known, Welcome welcome,
                                                           std::vector<UniqueFd> descriptors);

  // For a version that was found without a sender, and is leased. When its sender comes, again() makes it whole.
  static std::shared_ptr<Attachment> found(std::unique_ptr<ReceiverTransport> transport, FoundVersion version,
                                           ReadPlan read_plan);
  // Leases a version of this epoch that was found by another transport. UNAVAILABLE: it is there no more. Prepare
  // thread.
  absl::Status find_again(const Publication& publication);

  // What a worker can read of a publication, and its tensors. Until an end_read() for each success. Prepare thread.
  struct Ready {
    SlotView view;  // its slot: the sender's, or one of the scheme's own memory here
    std::shared_ptr<const Weights> weights;
  };
  absl::StatusOr<Ready> prepare(const Publication& publication, Deadline deadline);
  // While a version is being written, until `deadline`: brings what there is of it nearer. True: there is more to come.
  // Blocks, mostly asleep. Prepare thread.
  bool copy_behind(const Publication& publication, Deadline deadline);
  // Copies what is fused and does not lie so in the slot. Prepare thread, after prepare(). An error of a device.
  absl::Status fuse(const Publication& publication, const SlotView& view, kernels::ThreadPool& pool, Deadline deadline);
  void end_read(SlotId slot);  // of a view; the scheme has it back once nothing else was prepared there. Prepare thread
  // Blocks until no device copies for it any more, also where time was up before. DEADLINE_EXCEEDED: one does. Prepare
  // thread.
  absl::Status settle(Deadline deadline);

  // Reaches slots that were made after the welcome, or that a new welcome offers; those it knows stay where they are.
  // An error comes back from prepare(), too. Prepare thread.
  absl::Status accept(ReceivedOffer offer);
  // Unmaps every slot but these. Prepare thread.
  void keep_only(const std::set<SlotId>& slots);

  Epoch epoch() const { return epoch_; }
  bool copies() const { return transport_->copies_behind() != nullptr; }  // prepare thread
  std::string path() const { return transport_->path(); }                 // likewise
  Reception* reception() const { return transport_->reception(); }        // or null. Prepare thread
  std::optional<int> device_of(SlotId slot) const;  // whose memory it is; none: it is not reached. Prepare thread
  DigestMode digest() const { return digest_; }
  const Layout& layout() const { return layout_; }
  const std::optional<Plan>& copy_plan() const { return read_plan_.copy_plan; }
  // What the control page says of a sender's slot; none over TCP, where there is no such page.
  std::optional<SlotRecord> record(SlotId slot) const {
    return control_page_ ? std::optional(control_page_->read(slot.index)) : std::nullopt;
  }

 private:
  Epoch epoch_ = 0;
  DigestMode digest_ = DigestMode::kOn;
  Layout layout_;
  ReadPlan read_plan_;
  std::optional<ControlPageView> control_page_;  // none without a sender, and over TCP
  std::unique_ptr<ReceiverTransport> transport_;
  std::map<SlotId, absl::Status> slots_;  // that were offered, and whether they could be reached
  std::map<SlotId, int> prepared_;        // views that are still read
  struct Tensors {
    std::shared_ptr<const Weights> weights;
    std::shared_ptr<std::byte> fused;  // copies of what does not lie side by side, where the slot lies; none: in place
    Version fused_version = 0;         // that they are of
  };
  absl::Status make_room_to_fuse(const SlotView& view, Tensors& tensors);
  std::unique_ptr<DeviceQueue> queue_;  // of the slots' device, where it fuses
  std::unique_ptr<DevicePlan> fuses_;
  std::map<SlotId, Tensors> tensors_;
};

}  // namespace bascule::inline v0
