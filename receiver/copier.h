// Copier: the engine's own tensors, and how a slot is copied into them.
//
// The registered tensors are set 0. With Apply::kBackground a second set of the same shapes, set 1, is allocated beside
// them, and versions go to the two in turn. A set's address never changes.
//
// Threads: the session decides which thread may touch which set. With kBackground the prepare thread copies into the
// set that the engine does not read; with kCommit the engine's own thread copies into the only set.
//
// If the targets lie on a device, that device copies, from slots that it can read. With kCommit the copy follows the
// work queued on the engine's stream, and later work on that stream waits for the copy.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/attachment.h>
#include <bascule/receiver/options.h>
#include <bascule/receiver/weights.h>
#include <bascule/transport/device.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/target.h>

namespace bascule::inline v0 {

class Copier {
 public:
  // `threads` is how many threads copy at the flip (kCommit), the engine's included; 0: one per core. `stream` is the
  // engine's, if the targets lie on a device. Returns INVALID_ARGUMENT in the same cases as check_targets(), and for
  // targets in several places, memory that is not the device's, or a stream of another device.
  static absl::StatusOr<std::unique_ptr<Copier>> make(std::vector<TargetTensor> targets, const ModelOptions& options,
                                                      Apply apply, int threads, Stream stream = nullptr);

  Apply apply() const { return apply_; }
  int device() const { return device_; }  // the device on which the targets lie, or kHost
  // Returns the device on which `targets` lie, or kHost. Targets without bytes count only if all are without bytes.
  static int place_of(std::span<const TargetTensor> targets);

  // Returns the specs that the sender can compare with its tensors before any byte moves; nullopt if a target is made
  // of parts, or only some tensors are wanted.
  std::optional<std::vector<TensorSpec>> expected() const;
  // Returns the plan for a sender's layout, or the errors of Plan::scatter().
  absl::StatusOr<Plan> plan(const Layout& layout) const { return Plan::scatter(layout, targets_, partial_); }

  // Returns the set to copy to after `set` (nullopt: nothing was copied yet); never the set that the engine reads.
  int after(std::optional<int> set) const { return apply_ == Apply::kCommit ? 0 : set ? 1 - *set : 1; }
  const std::shared_ptr<const Weights>& weights(int set) const { return sets_[static_cast<std::size_t>(set)].weights; }

  // What copy() verifies in the pass that copies.
  struct Check {
    bool all = false;                  // the digest of all bytes of the slot
    const PartCheck* parts = nullptr;  // otherwise these tiles
  };
  // Copies `publication`, which has `layout`, from `view` into `set`. Returns DATA_LOSS if what it verifies is not what
  // was sealed; the set then holds neither the previous version nor this one. Returns DEADLINE_EXCEEDED if a device has
  // not finished; it may read the slot until settle().
  absl::Status copy(const Plan& plan, const Layout& layout, const Publication& publication, const SlotView& view,
                    int set, Check check, kernels::ThreadPool& pool, Deadline deadline);
  // If the targets lie on a device, copies a new plan there, so that no flip waits for it. Prepare thread.
  absl::Status make_ready(const Plan& plan, const Publication& publication);
  // Blocks until no device still copies for this object, even for a copy() that ran out of time. Returns
  // DEADLINE_EXCEEDED if a device still copies.
  absl::Status settle(Deadline deadline);
  // The threads for the copy at the flip; only with kCommit.
  kernels::ThreadPool& flip_pool() { return *flip_pool_; }

 private:
  struct Set {
    std::vector<std::byte*> addresses;  // one per target
    std::shared_ptr<const Weights> weights;
  };
  absl::Status allocate_second_set();
  absl::Status plan_on_device(const Plan& plan, const Publication& publication);  // device_mutex_ held

  std::vector<TargetTensor> targets_;
  bool partial_ = false;
  Apply apply_ = Apply::kCommit;
  int device_ = kHost;
  Stream stream_ = nullptr;
  std::shared_ptr<std::byte> second_;  // memory of set 1
  std::array<Set, 2> sets_;
  std::optional<kernels::ThreadPool> flip_pool_;

  std::mutex device_mutex_;             // the engine copies while the next version is made ready
  CheckedTable checked_;                // destroyed after the queue
  std::unique_ptr<DeviceQueue> queue_;  // for targets on a device
  std::vector<kernels::Segment> planned_;
  std::uint64_t planned_bytes_ = 0;          // the slot's bytes, all of which the plan digests
  std::unique_ptr<DevicePlan> device_plan_;  // made from planned_ and planned_bytes_
};

}  // namespace bascule::inline v0
