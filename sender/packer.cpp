#include "sender/packer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/pack.h"
#include "transport/device.h"
#include "transport/text.h"

namespace bascule {
namespace {

class HostPacker final : public Packer {
 public:
  explicit HostPacker(kernels::ThreadPool& pool) : pool_(pool) {}

  bool enqueues() const override { return false; }
  absl::Status plan(const Packing&) override { return absl::OkStatus(); }
  absl::Status pack(const Packing& packing, std::span<std::byte> slot, bool want_digest,
                    std::atomic<std::uint64_t>& bytes_done) override {
    digest_ = kernels::pack(packing.segments, packing.addresses, slot, want_digest, pool_, &bytes_done);
    return absl::OkStatus();
  }
  absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream) override {
    digest_.reset();
    if (want_digest) digest_ = kernels::digest(slot, pool_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline) override { return digest_; }

 private:
  kernels::ThreadPool& pool_;
  std::optional<Digest> digest_;
};

class DevicePacker final : public Packer {
 public:
  explicit DevicePacker(std::unique_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {}

  bool enqueues() const override { return true; }
  absl::Status plan(const Packing& packing) override {
    Planned& planned = of(packing);
    if (planned.plan &&
        (planned.number == packing.plan_number || std::ranges::equal(planned.segments, packing.segments))) {
      planned.number = packing.plan_number;
      return absl::OkStatus();
    }
    planned.plan.reset();
    BASCULE_ASSIGN(planned.plan, queue_->plan(DeviceQueue::Into::kSlot, packing.segments, packing.addresses.size(),
                                              packing.slot_bytes));
    planned.segments.assign(packing.segments.begin(), packing.segments.end());
    planned.number = packing.plan_number;
    return absl::OkStatus();
  }
  absl::Status pack(const Packing& packing, std::span<std::byte> slot, bool want_digest,
                    std::atomic<std::uint64_t>&) override {
    return queue_->run(*of(packing).plan, packing.addresses, slot.data(), want_digest, packing.stream);
  }
  absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream stream) override {
    return want_digest ? queue_->digest(slot, stream) : queue_->follow(stream);
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override { return queue_->finish(deadline); }

 private:
  struct Planned {
    std::uint64_t number = 0;
    std::vector<kernels::Segment> segments;
    std::unique_ptr<DevicePlan> plan;
  };
  Planned& of(const Packing& packing) { return packing.registered ? registered_ : others_; }

  std::unique_ptr<DeviceQueue> queue_;
  Planned registered_, others_;  // behind the queue: they go first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Packer>> Packer::choose(const Scheme& scheme, int device, kernels::ThreadPool& pool) {
  if (device == kHost) {
    if (!scheme.on_device) return std::make_unique<HostPacker>(pool);
    return unimplemented("the tensors lie in host memory and ", scheme.name,
                         " keeps its slots on a device, which this ",
                         "version does not pack from there; use shm for a trainer on the CPU");
  }
  BASCULE_TRY(annotate(why_no_cuda(), cat("the tensors lie on device ", device)));
  if (!scheme.on_device)
    return unimplemented("the tensors lie on device ", device, " and ", scheme.name,
                         " keeps its slots in host memory, ",
                         "which this version does not pack from there; use cuda-ipc for a trainer on a GPU");
  BASCULE_ASSIGN(std::unique_ptr<DeviceQueue> queue, open_device(device));
  return std::make_unique<DevicePacker>(std::move(queue));
}

}  // namespace bascule
