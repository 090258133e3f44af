// Attachment: a receiver's view of one epoch of a sender: its layout, the scheme's end, the control page, and the
// tensors of each slot. It lives until nothing of it is served any longer, even after the sender is gone.
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

// Builds the tensors of a slot from the layout and the slot's address, or the tensors of one of the engine's sets.
class WeightsBuilder {
 public:
  static std::shared_ptr<const Weights> build(const Layout& layout, const SlotView& slot,
                                              std::vector<TensorView> fused);
  // The tensors of `targets`, which must outlive it, placed at `addresses`.
  static std::shared_ptr<const Weights> build(std::span<const TargetTensor> targets,
                                              std::span<std::byte* const> addresses);
};

// Makes the receiver's end of `scheme`, for an engine that reads on endpoint.device. If that is a device and the slots
// lie elsewhere, it has receive buffers there, `kept` of them from the start.
std::unique_ptr<ReceiverTransport> make_transport(const Scheme& scheme, const Endpoint& endpoint, std::size_t kept);

// How a worker takes a layout; determined before anything is mapped.
struct ReadPlan {
  // Receive buffers on a device: the one to copy from, or one that is read in place and one for the next version.
  std::size_t buffers_kept() const { return copy_plan ? 1 : 2; }

  std::optional<Plan> copy_plan{};  // if it copies
  Fusion fusion{};                  // if it reads in place
};

class Attachment {
 public:
  // Reaches the slots that the welcome offers. `descriptors` are the scheme's and the control page (last); over TCP
  // there are none. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> make(const Scheme& scheme, const Endpoint& endpoint,
                                                          Welcome welcome, std::vector<UniqueFd> descriptors,
                                                          ReadPlan read_plan = {});

  // The same after a lost connection: known slots keep their addresses. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> again(const std::shared_ptr<Attachment>& known, Welcome welcome,
                                                           std::vector<UniqueFd> descriptors);

  // For a version that was found without a sender, and is leased. When its sender comes, again() completes it.
  static std::shared_ptr<Attachment> found(std::unique_ptr<ReceiverTransport> transport, FoundVersion version,
                                           ReadPlan read_plan);
  // Leases a version of this epoch that was found by another transport. UNAVAILABLE: it is gone. Prepare thread.
  absl::Status find_again(const Publication& publication);

  // A publication's slot and tensors. Each successful prepare() needs an end_read(). Prepare thread.
  struct Ready {
    SlotView view;  // the sender's slot, or one of the scheme's own here
    std::shared_ptr<const Weights> weights;
  };
  absl::StatusOr<Ready> prepare(const Publication& publication, Deadline deadline);
  // Copies the bytes that are written so far, until `deadline`. Returns true if there is more to come. Blocks, mostly
  // asleep. Prepare thread.
  bool copy_behind(const Publication& publication, Deadline deadline);
  // Copies the fused tensors that are not fused in the slot. Prepare thread, after prepare(). Errors are a device's.
  absl::Status fuse(const Publication& publication, const SlotView& view, kernels::ThreadPool& pool, Deadline deadline);
  void end_read(SlotId slot);  // of a view; the last one returns the slot to the scheme. Prepare thread
  // Blocks until no device copies for it any longer, including calls that ran out of time. DEADLINE_EXCEEDED: one still
  // does. Prepare thread.
  absl::Status settle(Deadline deadline);

  // Reaches slots that were made after the welcome, or that a new welcome offers; known slots keep their addresses.
  // prepare() returns the same error again. Prepare thread.
  absl::Status accept(ReceivedOffer offer);
  // Unmaps every slot but these. Prepare thread.
  void keep_only(const std::set<SlotId>& slots);

  Epoch epoch() const { return epoch_; }
  bool copies() const { return transport_->copies_behind() != nullptr; }  // prepare thread
  std::string path() const { return transport_->path(); }                 // prepare thread
  Reception* reception() const { return transport_->reception(); }        // or null. Prepare thread
  std::optional<int> device_of(SlotId slot) const;  // whose memory it is; nullopt: it is not reached. Prepare thread
  DigestMode digest() const { return digest_; }
  const Layout& layout() const { return layout_; }
  const std::optional<Plan>& copy_plan() const { return read_plan_.copy_plan; }
  // Reads a sender's slot on the control page. Returns nullopt without such a page, as over TCP.
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
  std::map<SlotId, absl::Status> slots_;  // the offered ones, and whether they could be reached
  std::map<SlotId, int> prepared_;        // views that are still read
  struct Tensors {
    std::shared_ptr<const Weights> weights;
    std::shared_ptr<std::byte> fused;  // copies of tensors not fused in the slot, in its place; null: all are in place
    Version fused_version = 0;         // of the copies
  };
  absl::Status make_room_to_fuse(const SlotView& view, Tensors& tensors);
  std::unique_ptr<DeviceQueue> queue_;  // of the slots' device, if it fuses there
  std::unique_ptr<DevicePlan> fuses_;
  std::map<SlotId, Tensors> tensors_;
};

}  // namespace bascule::inline v0
