#include <bascule/sender/packer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <bascule/kernels/pack.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/known_memory.h>
#include <bascule/sender/pack_pace.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

class HostPacker final : public Packer {
 public:
  explicit HostPacker(kernels::ThreadPool& pool) : pool_(pool), all_(pool.threads()), pace_(all_) {}

  bool enqueues() const override { return false; }
  bool makes_tables() const override { return true; }
  absl::Status check(const Packing&) override { return absl::OkStatus(); }
  absl::Status plan(const Packing&) override { return absl::OkStatus(); }
  absl::Status pack(const Packing& packing, SlotMemory& slot, bool want_digest, std::atomic<std::uint64_t>& bytes_done,
                    const SlotTable& table) override {
    in_pieces_ = packing.in_pieces;
    if (in_pieces_) pool_.use_at_most(pace_.threads());
    digest_ =
        kernels::pack(packing.segments, packing.addresses, slot.writable(), want_digest, pool_, &bytes_done,
                      packing.arithmetic, {.totals = want_digest ? table.totals : std::span<kernels::TileTotal>()});
    pool_.use_at_most(all_);
    return absl::OkStatus();
  }
  absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream, const SlotTable& table) override {
    digest_.reset();
    if (want_digest) digest_ = kernels::digest(slot, pool_, {.totals = table.totals});
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline) override { return digest_; }
  void took(double pack, double rest) override {
    if (in_pieces_) pace_.took(pack, rest);
  }

 private:
  kernels::ThreadPool& pool_;
  const int all_;  // its threads
  PackPace pace_;
  bool in_pieces_ = false;
  std::optional<Digest> digest_;
};

// The device plans of the registered tensors, and of other weights.
class DevicePlans {
 public:
  absl::Status check(DeviceQueue& queue, const Packing& packing) {
    Planned& planned = packing.registered ? registered_ : others_;
    BASCULE_TRY(planned.memory.check(queue.device(), packing.views, packing.plan_number, packing.read_number));
    BASCULE_TRY(planned.factors.check(queue.device(), packing.factors, packing.plan_number, packing.read_number));
    return annotate(queue.check(packing.stream), "the stream of the tensors");
  }
  absl::Status make(DeviceQueue& queue, const Packing& packing) {
    Planned& planned = packing.registered ? registered_ : others_;
    // Weights that leave out a tied name have the same segments, and fewer addresses.
    const auto same = [&] {
      return planned.tensors == packing.addresses.size() && std::ranges::equal(planned.segments, packing.segments) &&
             std::ranges::equal(planned.arithmetic, packing.arithmetic);
    };
    if (planned.plan && (planned.number == packing.plan_number || same())) {
      planned.number = packing.plan_number;
      return absl::OkStatus();
    }
    planned.plan.reset();
    BASCULE_ASSIGN(planned.plan, queue.plan(DeviceQueue::Into::kSlot, packing.segments, packing.addresses.size(),
                                            packing.slot_bytes, packing.arithmetic));
    planned.segments.assign(packing.segments.begin(), packing.segments.end());
    planned.arithmetic.assign(packing.arithmetic.begin(), packing.arithmetic.end());
    planned.tensors = packing.addresses.size();
    planned.number = packing.plan_number;
    return absl::OkStatus();
  }
  DevicePlan& of(const Packing& packing) { return packing.registered ? *registered_.plan : *others_.plan; }

 private:
  struct Planned {
    std::uint64_t number = 0;
    std::vector<kernels::Segment> segments;
    std::vector<kernels::Arithmetic> arithmetic;
    std::size_t tensors = 0;  // those with addresses
    std::unique_ptr<DevicePlan> plan;
    KnownMemory memory, factors;
  };
  Planned registered_, others_;
};

class DevicePacker final : public Packer {
 public:
  explicit DevicePacker(std::unique_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {}

  bool enqueues() const override { return true; }
  bool makes_tables() const override { return true; }
  bool makes_table(const Packing& packing) const override { return packing.arithmetic.empty(); }
  absl::StatusOr<std::unique_ptr<DeviceTable>> reach_table(std::span<kernels::TileTotal> totals) override {
    return queue_->open_table(totals);
  }
  absl::Status check(const Packing& packing) override { return plans_.check(*queue_, packing); }
  absl::Status plan(const Packing& packing) override { return plans_.make(*queue_, packing); }
  absl::Status pack(const Packing& packing, SlotMemory& slot, bool want_digest, std::atomic<std::uint64_t>& bytes_done,
                    const SlotTable& table) override {
    DevicePlan& plan = plans_.of(packing);
    const std::byte* const to = slot.writable().data();
    in_pieces_ = packing.in_pieces ? &bytes_done : nullptr;
    const Digesting digesting(want_digest, want_digest ? table.on_device : nullptr);
    if (in_pieces_ == nullptr) return queue_->run(plan, packing.addresses, to, digesting, packing.stream);
    return queue_->run_in_pieces(plan, packing.addresses, to, digesting, packing.stream, in_pieces_);
  }
  absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream stream,
                      const SlotTable& table) override {
    in_pieces_ = nullptr;
    return want_digest ? queue_->digest(slot, {true, table.on_device}, stream) : queue_->run_behind(stream);
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override {
    if (in_pieces_ != nullptr) BASCULE_TRY(queue_->watch_pieces(*in_pieces_, deadline));
    return queue_->finish(deadline);
  }

 private:
  std::unique_ptr<DeviceQueue> queue_;
  DevicePlans plans_;                                // after the queue, so that they are destroyed first
  std::atomic<std::uint64_t>* in_pieces_ = nullptr;  // the bytes done of a pack in pieces
};

// Packs into its own slot on the device, all at once, so that the trainer's stream waits only for that, which takes a
// thirtieth of the time of the copies to the host. finish() drives the copies.
class DeviceToHostPacker final : public Packer {
 public:
  DeviceToHostPacker(std::unique_ptr<DeviceQueue> queue, kernels::ThreadPool& pool)
      : pool_(pool), queue_(std::move(queue)) {}

  bool enqueues() const override { return true; }
  bool makes_tables() const override { return true; }
  bool makes_table(const Packing& packing) const override { return packing.arithmetic.empty(); }
  absl::StatusOr<std::unique_ptr<DeviceTable>> reach_table(std::span<kernels::TileTotal> totals) override {
    return queue_->open_table(totals);
  }
  absl::Status reach(SlotMemory& memory) override {
    BASCULE_ASSIGN(memory.window, queue_->open_window(memory.writable(), kHost, Access::kReadWrite));
    absl::StrAppend(&memory.description, "; ", memory.window->how());
    return absl::OkStatus();
  }
  absl::Status check(const Packing& packing) override { return plans_.check(*queue_, packing); }
  absl::Status plan(const Packing& packing) override {
    BASCULE_TRY(plans_.make(*queue_, packing));
    if (packed_) return absl::OkStatus();  // all slots of a layout have one size
    BASCULE_ASSIGN(packed_, queue_->allocate(packing.slot_bytes, "the slot that is packed before it is copied out"));
    return absl::OkStatus();
  }
  absl::Status pack(const Packing& packing, SlotMemory& slot, bool want_digest, std::atomic<std::uint64_t>& bytes_done,
                    const SlotTable& table) override {
    slot_ = &slot;
    bytes_done_ = &bytes_done;
    return queue_->run_in_pieces(plans_.of(packing), packing.addresses, packed_.get(),
                                 {want_digest, want_digest ? table.on_device : nullptr}, packing.stream,
                                 /*bytes_done=*/nullptr);
  }
  // The slot is host memory, but the caller may have let a device write it.
  absl::Status digest(std::span<const std::byte> slot, bool want_digest, Stream stream,
                      const SlotTable& table) override {
    slot_ = nullptr;
    BASCULE_TRY(queue_->run_behind(stream));
    if (want_digest) written_ = Written{.slot = slot, .totals = table.totals};
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override {
    const auto written = std::exchange(written_, std::nullopt);
    if (slot_ != nullptr) BASCULE_TRY(queue_->copy_out(packed_.get(), *slot_->window, *bytes_done_, deadline));
    BASCULE_ASSIGN(const std::optional<Digest> packed, queue_->finish(deadline));
    return written ? kernels::digest(written->slot, pool_, {.totals = written->totals}) : packed;
  }

 private:
  kernels::ThreadPool& pool_;
  std::unique_ptr<DeviceQueue> queue_;
  DevicePlans plans_;                  // after the queue, so that they are destroyed first
  std::shared_ptr<std::byte> packed_;  // a slot on the device
  SlotMemory* slot_ = nullptr;         // for pack() to fill
  std::atomic<std::uint64_t>* bytes_done_ = nullptr;
  struct Written {
    std::span<const std::byte> slot;
    std::span<kernels::TileTotal> totals;
  };
  std::optional<Written> written_;  // to be digested
};

}  // namespace

absl::Status Packer::reach(SlotMemory&) { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<Packer>> Packer::choose(const Scheme& scheme, int device, kernels::ThreadPool& pool) {
  if (device == kHost) {
    if (!scheme.on_device) return std::make_unique<HostPacker>(pool);
    return unimplemented("the tensors lie in host memory and ", scheme.name,
                         " keeps its slots on a device, which only ", "tensors on that device are packed into; use ",
                         names_of_schemes(/*on_device=*/false),
                         " for a trainer on the CPU, which engines on GPUs can also read");
  }
  BASCULE_TRY(annotate(why_no_cuda(), cat("the tensors lie on device ", device)));
  BASCULE_ASSIGN(std::unique_ptr<DeviceQueue> queue, open_device(device));
  if (!scheme.on_device) return std::make_unique<DeviceToHostPacker>(std::move(queue), pool);
  return std::make_unique<DevicePacker>(std::move(queue));
}

}  // namespace bascule::inline v0
