// Attachment: a receiver's view of one epoch of a sender: its layout, the receiver's end of the scheme, the control
// page, and the tensors of each slot. It lives as long as any of its versions is served, even after the sender is gone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include <bascule/receiver/fusion.h>
#include <bascule/receiver/part_check.h>
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
  // `fused` are more tensors or, with `fused_all`, all of them.
  static std::shared_ptr<const Weights> build(const Layout& layout, const SlotView& slot, std::vector<TensorView> fused,
                                              bool fused_all = false);
  // Builds the tensors of `targets`, placed at `addresses`. `targets` must outlive the result.
  static std::shared_ptr<const Weights> build(std::span<const TargetTensor> targets,
                                              std::span<std::byte* const> addresses);
};

// Makes the receiver's end of `scheme`, for an engine that reads on endpoint.device. If that is a device and the slots
// lie elsewhere, the result copies them into receive buffers on that device, and makes `kept` of these at the start.
std::unique_ptr<ReceiverTransport> make_transport(const Scheme& scheme, const Endpoint& endpoint, std::size_t kept);

// How a worker takes a layout; determined before anything is mapped.
struct ReadPlan {
  // How many receive buffers to keep on a device: one if the engine copies from it; otherwise one that is read in
  // place, and one for the next version.
  std::size_t buffers_kept() const { return copy_plan ? 1 : 2; }

  std::optional<Plan> copy_plan{};                // set if the engine copies
  std::shared_ptr<const PlanTiles> tiles_read{};  // set if it copies only parts
  Fusion fusion{};                                // used if the engine reads in place
};

class Attachment {
 public:
  // Reaches the slots that the welcome offers. `descriptors` are the scheme's and, last, the control page; over TCP
  // there are none. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> make(const Scheme& scheme, const Endpoint& endpoint,
                                                          Welcome welcome, std::vector<UniqueFd> descriptors,
                                                          ReadPlan read_plan = {});

  // Like make(), but after a lost connection: known slots keep their addresses. Prepare thread.
  static absl::StatusOr<std::shared_ptr<Attachment>> again(const std::shared_ptr<Attachment>& known, Welcome welcome,
                                                           std::vector<UniqueFd> descriptors);

  // Makes an attachment for a version found without a sender, and leased. When its sender comes, again() completes it.
  static std::shared_ptr<Attachment> found(std::unique_ptr<ReceiverTransport> transport, FoundVersion version,
                                           ReadPlan read_plan);
  // Leases a version of this epoch that another transport found. Returns UNAVAILABLE if it is gone. Prepare thread.
  absl::Status find_again(const Publication& publication);

  // A publication's slot and tensors. Each successful prepare() needs an end_read(). Prepare thread.
  struct Ready {
    SlotView view;  // the sender's slot, or one that the scheme keeps on this side
    std::shared_ptr<const Weights> weights;
  };
  absl::StatusOr<Ready> prepare(const Publication& publication, Deadline deadline);
  // Copies bytes as they are written, until `deadline`. Returns true if more are to come. Blocks, mostly asleep.
  // Prepare thread.
  bool copy_behind(const Publication& publication, Deadline deadline);
  // Copies the fused tensors that are not fused in the slot. Prepare thread, after prepare(). Returns errors of a
  // device, and DATA_LOSS if all bytes were copied and are not those that were sealed.
  absl::Status fuse(const Publication& publication, const SlotView& view, kernels::ThreadPool& pool, Deadline deadline);
  void end_read(SlotId slot);  // ends one view's read; the last one returns the slot to the scheme. Prepare thread
  // Blocks until no device still copies for this attachment, even for calls that ran out of time. Returns
  // DEADLINE_EXCEEDED if a device still copies. Prepare thread.
  absl::Status settle(Deadline deadline);

  // Reaches slots that were made after the welcome, or that a new welcome offers; known slots keep their addresses. If
  // a slot cannot be reached, its prepare() returns the same error again. Prepare thread.
  absl::Status accept(ReceivedOffer offer);
  // Unmaps every slot but these. Prepare thread.
  void keep_only(const std::set<SlotId>& slots);

  Epoch epoch() const { return epoch_; }
  bool copies() const { return transport_->copies_behind() != nullptr; }  // prepare thread
  std::string path() const { return transport_->path(); }                 // prepare thread
  Reception* reception() const { return transport_->reception(); }        // null if there is none. Prepare thread
  ReadsAgain* reads_again() const { return transport_->reads_again(); }   // the same
  std::optional<int> device_of(SlotId slot) const;  // where the slot lies; nullopt if it is not reached. Prepare thread
  DigestMode digest() const { return digest_; }
  const Layout& layout() const { return layout_; }
  const std::shared_ptr<const std::string>& description() const { return description_; }  // null if there is none
  const std::optional<Plan>& copy_plan() const { return read_plan_.copy_plan; }
  // What a pass of copies reads, if no tile is checked. nullopt: unknown.
  std::optional<BytesRead> copied_bytes() const;
  bool copies_parts() const { return read_plan_.tiles_read != nullptr; }
  // Returns the version's digest table, in `memory`, or nullopt if the sender made no digest or no table. DATA_LOSS:
  // the table is not the version's.
  absl::StatusOr<std::optional<DigestTable>> digest_table(const Publication& publication,
                                                          DigestTable memory = {}) const;
  // Returns what an engine that copies only parts of the version compares: the tiles that it copies whole or, if
  // `touched`, all that it copies from. Null if it copies everything, or there is no table. Returns the errors of
  // digest_table().
  absl::StatusOr<std::shared_ptr<const PartCheck>> part_check(const Publication& publication, bool touched);
  // Reads a sender's slot on the control page. Returns nullopt without such a page, as over TCP.
  std::optional<SlotRecord> record(SlotId slot) const {
    return control_page_ ? std::optional(control_page_->read(slot.index)) : std::nullopt;
  }

 private:
  void use(Layout layout);

  Epoch epoch_ = 0;
  DigestMode digest_ = DigestMode::kOn;
  Layout layout_;
  std::shared_ptr<const std::string> description_;  // the layout's; versions that were copied outlive this object
  ReadPlan read_plan_;
  std::optional<ControlPageView> control_page_;  // none without a sender, and over TCP
  std::unique_ptr<ReceiverTransport> transport_;
  std::map<SlotId, absl::Status> slots_;  // the offered slots, and whether they could be reached
  std::map<SlotId, int> prepared_;        // how many views of each slot are still read
  struct Tensors {
    std::shared_ptr<const Weights> weights;
    std::shared_ptr<std::byte> fused;  // copies of the tensors that are not fused in the slot; null if there are none
    Version fused_version = 0;         // the version that was copied
  };
  absl::Status make_room_to_fuse(const SlotView& view, Tensors& tensors);
  std::unique_ptr<DeviceQueue> queue_;  // the slots' device's queue, if tensors are fused there
  std::unique_ptr<DevicePlan> fuses_;
  std::map<SlotId, Tensors> tensors_;
  std::vector<std::shared_ptr<PartCheck>> checks_;  // one that no version holds is used again
};

}  // namespace bascule::inline v0
