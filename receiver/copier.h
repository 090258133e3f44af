// Copier: the engine's own tensors, and how a slot is copied into them.
//
// Sets: the registered tensors are set 0; with Apply::kBackground a second set of the same shapes, set 1, is allocated
// beside them, and versions go to the two in turn. A set has one address for good.
//
// Threads: the session decides which thread may touch which set: the prepare thread copies into the one that the engine
// does not read (background), or the engine's own thread into the only one (commit).
//
// Targets on a device are copied to by that device, out of slots that it reads: with kCommit behind what the engine's
// stream was given, which waits for the copy on the device, too.
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
  // `threads` copy at the flip (commit), the engine's included; 0: one per core. `stream`: the engine's, where the
  // targets lie on a device. INVALID_ARGUMENT as check_targets(), targets in several places, memory that
  // is not the device's, or a stream of another device.
  static absl::StatusOr<std::unique_ptr<Copier>> make(std::vector<TargetTensor> targets, const ModelOptions& options,
                                                      Apply apply, int threads, Stream stream = nullptr);

  Apply apply() const { return apply_; }
  int device() const { return device_; }  // on which the targets lie, or kHost
  // The same of targets that are not registered yet: of those that have any bytes, where there are such.
  static int place_of(std::span<const TargetTensor> targets);

  // What the sender can compare with its tensors before any byte moves; none where a target is made of parts, or only
  // some tensors are wanted.
  std::optional<std::vector<TensorSpec>> expected() const;
  // The plan for a sender's layout. INVALID_ARGUMENT as Plan::scatter.
  absl::StatusOr<Plan> plan(const Layout& layout) const { return Plan::scatter(layout, targets_, partial_); }

  // The set after `set` (none: nothing was copied yet): never the one that the engine reads.
  int after(std::optional<int> set) const { return apply_ == Apply::kCommit ? 0 : set ? 1 - *set : 1; }
  const std::shared_ptr<const Weights>& weights(int set) const { return sets_[static_cast<std::size_t>(set)].weights; }

  // Copies what `view` holds of `publication` into `set`. With `check` the digest is made in the same pass; DATA_LOSS:
  // it is not what was sealed, and the set holds neither the version of before nor this one. DEADLINE_EXCEEDED: a
  // device has not come to its end, and reads the slot until settle().
  absl::Status copy(const Plan& plan, const Publication& publication, const SlotView& view, int set, bool check,
                    kernels::ThreadPool& pool, Deadline deadline);
  // Brings the plan to the device, where that is one and has another, so that no flip waits for it. Prepare thread.
  absl::Status make_ready(const Plan& plan, const Publication& publication);
  // Blocks until no device copies for it any more, also of a copy() whose time was up. DEADLINE_EXCEEDED: one does.
  absl::Status settle(Deadline deadline);
  // For the copy at the flip; kCommit alone.
  kernels::ThreadPool& flip_pool() { return *flip_pool_; }

 private:
  struct Set {
    std::vector<std::byte*> addresses;  // of targets
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
  std::unique_ptr<DeviceQueue> queue_;  // of targets on a device
  std::vector<kernels::Segment> planned_;
  std::uint64_t planned_bytes_ = 0;          // of the slot, all of which the plan digests
  std::unique_ptr<DevicePlan> device_plan_;  // of both
};

}  // namespace bascule::inline v0
