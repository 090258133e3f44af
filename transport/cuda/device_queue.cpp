// transport/device.h with CUDA: the kernels' plans on our own stream, ordered against the user's by events.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/cuda_pack.h>
#include <bascule/kernels/cuda_unpack.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_totals.h>
#include <bascule/transport/cuda/host_window.h>
#include <bascule/transport/cuda/milestones.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/cuda/stream.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace kc = kernels::cuda;

// Copied-in bytes are digested in pieces of this size while the next piece is copied, so that 0.1 ms remains after the
// last copy. Some microseconds lie between two copies.
constexpr std::uint64_t kDigestedBehind = std::uint64_t{256} << 20;
static_assert(kDigestedBehind % kernels::kTileBytes == 0 && kDevicePieceBytes % kernels::kTileBytes == 0 &&
              kHostPieceBytes % kernels::kTileBytes == 0);

using cuda::cuda_status;
using cuda::UniqueEvent;
using cuda::UniqueStream;

// The common interface of both kinds of plan.
class CudaPlan : public DevicePlan {
 public:
  virtual kc::CudaResult run(std::span<void* const> tensors, void* slot, Digesting digesting, Stream stream) = 0;
  virtual void forget() = 0;
  virtual Digest digest() const = 0;
  virtual kernels::TileTotal total() const = 0;
  virtual std::uint64_t slot_bytes() const = 0;
};

class Packs final : public CudaPlan {
 public:
  kc::CudaResult run(std::span<void* const> tensors, void* slot, Digesting digesting, Stream stream) override {
    return plan.pack(tensors, slot, digesting.all, stream, cuda::output_of(digesting));
  }
  void forget() override { plan.forget(); }
  Digest digest() const override { return plan.digest(); }
  kernels::TileTotal total() const override { return plan.total(); }
  std::uint64_t slot_bytes() const override { return plan.slot_bytes(); }
  kc::PackPlan plan;
};

class Unpacks final : public CudaPlan {
 public:
  kc::CudaResult run(std::span<void* const> tensors, void* slot, Digesting digesting, Stream stream) override {
    return plan.unpack(slot, tensors, digesting.all, stream, cuda::output_of(digesting));
  }
  void forget() override { plan.forget(); }
  Digest digest() const override { return plan.digest(); }
  kernels::TileTotal total() const override { return plan.total(); }
  std::uint64_t slot_bytes() const override { return plan.slot_bytes(); }
  kc::UnpackPlan plan;
};

class CudaQueue final : public DeviceQueue {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceQueue>> open(int device) {
    auto made = std::make_unique<CudaQueue>();
    made->device_ = device;
    const kc::DeviceGuard guard(device);
    BASCULE_TRY(cuda_status(guard.result()));
    BASCULE_TRY(cuda_status(kc::DeviceLife::of(device, &made->life_)));
    BASCULE_ASSIGN(made->stream_, UniqueStream::make(device, UniqueStream::Priority::kHigh));
    BASCULE_ASSIGN(made->before_, UniqueEvent::make(device));
    BASCULE_ASSIGN(made->done_, UniqueEvent::make(device));
    BASCULE_TRY(cuda_status(kc::DigestCell::make(&made->cell_)));
    return made;
  }
  ~CudaQueue() override {
    (void)settle(Deadline(cuda::kUnderWay));  // its targets may be unmapped next
  }

  int device() const override { return device_; }

  absl::Status check(Stream caller) override {
    BASCULE_TRY(usable());
    return keep(check_stream(device_, caller));
  }

  absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments,
                                                   std::size_t tensors, std::uint64_t slot_bytes,
                                                   std::span<const kernels::Arithmetic> arithmetic,
                                                   OfRegions of) override {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);
    BASCULE_TRY(cuda_status(guard.result()));
    const std::string what = cat("the tables for packing or copying ", tensors, " tensors");
    if (into == Into::kSlot) {
      auto made = std::make_unique<Packs>();
      BASCULE_TRY(asked_for(
          what, keep(kc::PackPlan::make(segments, tensors, slot_bytes, &made->plan, arithmetic, of.first_page))));
      return made;
    }
    auto made = std::make_unique<Unpacks>();
    BASCULE_TRY(asked_for(what, keep(kc::UnpackPlan::make(segments, tensors, slot_bytes, &made->plan, of.regions))));
    return made;
  }

  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) override {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);
    BASCULE_TRY(cuda_status(guard.result()));
    auto memory = std::make_shared<kc::DeviceMemory>();
    BASCULE_TRY(asked_for(what, keep(kc::DeviceMemory::make(std::max<std::uint64_t>(bytes, 1), memory.get()))));
    return std::shared_ptr<std::byte>(memory, memory->as<std::byte>());
  }

  absl::StatusOr<std::unique_ptr<DeviceTable>> make_table(std::uint64_t tiles,
                                                          std::span<const std::uint8_t> wanted) override {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);
    BASCULE_TRY(cuda_status(guard.result()));
    absl::StatusOr<std::unique_ptr<DeviceTable>> made = cuda::CudaTable::make(tiles, wanted);
    return made.ok() ? std::move(made) : keep(made.status());
  }

  absl::StatusOr<std::unique_ptr<DeviceTable>> open_table(std::span<kernels::TileTotal> totals) override {
    BASCULE_TRY(usable());
    absl::StatusOr<std::unique_ptr<DeviceTable>> made = cuda::CudaTable::open(device_, totals);
    return made.ok() ? std::move(made) : keep(made.status());
  }

  absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                   Digesting digesting, Caller caller) override {
    auto& made = static_cast<CudaPlan&>(plan);
    if (digesting.all) BASCULE_TRY(check_digestible(made.slot_bytes()));
    take_addresses(tensors);
    return enqueue(caller, [&] {
      digest_ = digesting.all ? Made::kByPlan : Made::kNone;
      plan_ = &made;
      return made.run(addresses_, const_cast<std::byte*>(slot), digesting, stream_.get());
    });
  }

  absl::Status digest(std::span<const std::byte> slot, Digesting digesting, Caller caller) override {
    if (digesting.all) BASCULE_TRY(check_digestible(slot.size()));
    return enqueue(caller, [&] {
      digest_ = digesting.all ? Made::kAlone : Made::kNone;
      const kc::TileOutput of_tiles = cuda::output_of(digesting);
      return digesting.all ? kc::digest(slot.data(), slot.size(), cell_, stream_.get(), of_tiles)
                           : kc::total_tiles(slot.data(), slot.size(), of_tiles, stream_.get());
    });
  }

  absl::Status run_behind(Stream caller) override {
    return enqueue(caller, [&] {
      digest_ = Made::kNone;
      return kc::CudaResult{};
    });
  }

  absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int place,
                                                          Access access) override {
    BASCULE_TRY(usable());
    BASCULE_TRY(make_stream_for_copies());
    absl::StatusOr<std::shared_ptr<cuda::CudaWindow>> window =
        cuda::CudaWindow::make(device_, bytes, place, access, buffers_);
    if (!window.ok()) return keep(window.status());
    return *std::move(window);
  }

  absl::Status run_in_pieces(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                             Digesting digesting, Caller caller, std::atomic<std::uint64_t>* bytes_done) override {
    kc::PackPlan& packs = static_cast<Packs&>(plan).plan;
    const std::uint64_t bytes = packs.slot_bytes();
    if (digesting.all) BASCULE_TRY(check_digestible(bytes));
    BASCULE_TRY(usable());
    BASCULE_TRY(make_stream_for_copies());
    take_addresses(tensors);
    return enqueue(caller, [&]() -> absl::Status {
      digest_ = digesting.all ? Made::kByPlan : Made::kNone;
      plan_ = &static_cast<Packs&>(plan);
      packed_.restart();
      BASCULE_TRY(left_.let_wait(stream_.get()));
      BASCULE_TRY(cuda_status(packs.begin(addresses_, const_cast<std::byte*>(slot), digesting.all, stream_.get(),
                                          cuda::output_of(digesting))));
      for (std::uint64_t begin = 0; begin < bytes;) {
        const std::uint64_t end = std::min(begin + piece_after(begin), bytes);
        BASCULE_TRY(cuda_status(packs.advance(end, stream_.get())));
        BASCULE_TRY(packed_.record(end, stream_));
        begin = end;
        if (bytes_done == nullptr) continue;
        BASCULE_ASSIGN(const std::uint64_t passed, packed_.passed());
        bytes_done->store(passed, std::memory_order_release);
      }
      return absl::OkStatus();
    });
  }

  absl::Status watch_pieces(std::atomic<std::uint64_t>& bytes_done, Deadline deadline) override {
    BASCULE_TRY(lost_);
    for (const auto& [packed, end] : packed_.recorded()) {
      BASCULE_TRY(keep(packed.wait(deadline)));
      if (end > bytes_done.load(std::memory_order_relaxed)) bytes_done.store(end, std::memory_order_release);
    }
    return absl::OkStatus();
  }

  absl::Status copy_out(const std::byte* slot, HostWindow& to, std::atomic<std::uint64_t>& bytes_done,
                        Deadline deadline) override {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);
    BASCULE_TRY(cuda_status(guard.result()));
    absl::Status copied = keep(
        static_cast<cuda::CudaWindow&>(to).copy_out(slot, packed_.recorded(), copies_.get(), bytes_done, deadline));
    BASCULE_TRY(keep(left_.record(copies_.get())));  // also after an error: some copies may be under way
    return copied;
  }

  absl::Status copy_to_host(const std::byte* slot, HostWindow& to, Deadline deadline) override {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);
    BASCULE_TRY(cuda_status(guard.result()));
    auto& window = static_cast<cuda::CudaWindow&>(to);
    cuda::Milestone there{.event = {}, .end = window.bytes()};
    BASCULE_ASSIGN(there.event, UniqueEvent::make(device_));  // nothing is recorded, so nothing waits
    std::atomic<std::uint64_t> bytes_done{0};
    absl::Status copied = keep(window.copy_out(slot, {&there, 1}, copies_.get(), bytes_done, deadline));
    BASCULE_TRY(keep(left_.record(copies_.get())));
    return copied;
  }

  absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                       Digesting digesting) override {
    if (digesting.all) BASCULE_TRY(check_digestible(slot.size(), "read it in place, on its own device"));
    return enqueue(std::nullopt, [&]() -> absl::Status {
      digest_ = digesting.all && end == slot.size() ? Made::kAlone : Made::kNone;
      const kc::TileOutput of_tiles = cuda::output_of(digesting);
      if (digesting.all && begin == 0)
        BASCULE_TRY(cuda_status(cell_.target(slot.size(), stream_.get(), &incoming_, 0, of_tiles)));
      const kc::DigestOutput target =
          digesting.all ? incoming_ : kc::DigestOutput{.bytes = slot.size(), .of_tiles = of_tiles};
      if (begin == 0) copied_in_.restart();
      const std::uint64_t all = end;
      while (begin < end) {
        const std::uint64_t next = std::min(begin + kDigestedBehind, end);
        BASCULE_TRY(static_cast<cuda::CudaWindow&>(from).copy_in(begin, next, slot.data(), copies_.get()));
        BASCULE_TRY(left_.record(copies_.get()));
        BASCULE_TRY(left_.let_wait(stream_.get()));
        if (digesting.all || digesting.table != nullptr)
          BASCULE_TRY(cuda_status(kc::digest_piece(slot.data(), begin / kernels::kTileBytes, kc::tiles_of(next), target,
                                                   cell_, stream_.get())));
        begin = next;
      }
      return copied_in_.record(all, copies_);
    });
  }

  absl::StatusOr<std::uint64_t> arrived() override {
    BASCULE_TRY(lost_);
    absl::StatusOr<std::uint64_t> bytes = copied_in_.passed();
    if (!bytes.ok()) return keep(bytes.status());
    return bytes;
  }

  absl::Status digest_behind(Stream producer, std::span<const std::byte> slot, std::uint64_t begin,
                             std::uint64_t end) override {
    BASCULE_TRY(check_digestible(slot.size()));
    return enqueue(std::nullopt, [&]() -> absl::Status {
      digest_ = end == slot.size() ? Made::kAlone : Made::kNone;
      if (begin == 0) BASCULE_TRY(cuda_status(cell_.target(slot.size(), stream_.get(), &incoming_)));
      if (producer != nullptr) {
        BASCULE_TRY(before_.record(producer));
        BASCULE_TRY(before_.let_wait(stream_.get()));
      }
      return cuda_status(kc::digest_piece(slot.data(), begin / kernels::kTileBytes, kc::tiles_of(end), incoming_, cell_,
                                          stream_.get()));
    });
  }

  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override {
    BASCULE_TRY(lost_);
    BASCULE_TRY(keep(done_.wait(deadline)));
    switch (digest_) {
      case Made::kNone: break;
      case Made::kByPlan: return plan_->digest();
      case Made::kAlone: return cell_.digest();
    }
    return std::nullopt;
  }

  kernels::TileTotal total() const override { return plan_ != nullptr ? plan_->total() : kernels::TileTotal{}; }

  // Waits for the streams themselves, because a failed call may have recorded no event.
  absl::Status settle(Deadline deadline) override {
    for (const UniqueStream* stream : {&stream_, &copies_}) {
      if (stream->get() == nullptr || !lost_.ok()) continue;
      if (absl::Status idle = keep(stream->wait(deadline)); !is_over(idle)) return idle;
    }
    return absl::OkStatus();
  }

 private:
  enum class Made { kNone, kByPlan, kAlone };

  // The first sticky error; a device that was reset counts as one.
  absl::Status usable() { return lost_.ok() && life_.over() ? keep(cuda::was_reset(device_)) : lost_; }

  // Returns `status`; if memory was short, its text also says what the memory was for.
  absl::Status asked_for(std::string_view what, const absl::Status& status) const {
    return absl::IsResourceExhausted(status) ? annotate(status, cat("memory for ", what, cuda::free_memory(device_)))
                                             : status;
  }

  absl::Status check_digestible(std::uint64_t slot_bytes, std::string_view instead = "use digest=off") const {
    if (kc::tiles_of(slot_bytes) <= kc::DigestTotals::kMostTiles) return absl::OkStatus();
    return unimplemented("device ", device_, " digests less than 128 GiB at once, found a slot of ", slot_bytes,
                         " bytes; ", instead);
  }

  void take_addresses(std::span<const std::byte* const> tensors) {
    addresses_.clear();
    for (const std::byte* tensor : tensors) addresses_.push_back(const_cast<std::byte*>(tensor));
  }

  absl::Status make_stream_for_copies() {
    if (copies_.get() != nullptr) return absl::OkStatus();
    BASCULE_ASSIGN(copies_, UniqueStream::make(device_));
    BASCULE_ASSIGN(left_, UniqueEvent::make(device_));
    return absl::OkStatus();
  }

  // The size of the piece at `begin`: as many bytes as lie before it, up to a limit. The first piece is soon there, and
  // few launches are needed; each one costs the pack some microseconds. A device packs faster than copies leave it, so
  // the copies of earlier pieces still run when a piece is packed. The limit is for packs that are slower.
  static std::uint64_t piece_after(std::uint64_t begin) {
    return std::clamp(begin, kDevicePieceBytes, 16 * kDevicePieceBytes);
  }

  template <typename Work>
  absl::Status enqueue(Caller caller, Work&& work) {
    BASCULE_TRY(usable());
    const kc::DeviceGuard guard(device_);  // one guard for the whole call
    BASCULE_TRY(cuda_status(guard.result()));
    if (caller) BASCULE_TRY(keep(check_stream(device_, *caller)));
    plan_ = nullptr;
    digest_ = Made::kNone;
    absl::Status enqueued = enqueue_between(caller, work);
    if (enqueued.ok()) return enqueued;
    if (plan_ != nullptr) plan_->forget();
    cell_.forget();
    return enqueued;
  }
  template <typename Work>
  absl::Status enqueue_between(Caller caller, Work& work) {
    if (caller) {
      BASCULE_TRY(keep(before_.record(*caller)));
      BASCULE_TRY(keep(before_.let_wait(stream_.get())));
    }
    BASCULE_TRY(keep(work()));
    BASCULE_TRY(keep(done_.record(stream_.get())));
    return caller ? keep(done_.let_wait(*caller)) : absl::OkStatus();
  }

  absl::Status keep(const kc::CudaResult& result) { return keep(cuda_status(result)); }
  absl::Status keep(absl::Status status) {
    if (cuda::is_sticky(status) && lost_.ok())
      lost_ = annotate(status, cat("device ", device_, " is lost to this process since this error"));
    return status;
  }

  int device_ = -1;
  kc::DeviceLife life_;  // in which everything here was made
  UniqueStream stream_;
  UniqueEvent before_, done_;
  kc::DigestCell cell_;
  Made digest_ = Made::kNone;
  CudaPlan* plan_ = nullptr;
  std::vector<void*> addresses_;
  // For packing in pieces and for slots in host memory; made when first needed.
  UniqueStream copies_;
  cuda::Milestones packed_;     // of the last run_in_pieces()
  UniqueEvent left_;            // after the last copy, in or out
  cuda::Milestones copied_in_;  // of the slot that is copied in
  kc::DigestOutput incoming_;   // of the slot that is copied in
  std::shared_ptr<cuda::PinnedBuffers> buffers_;
  absl::Status lost_;  // the first sticky error
};

}  // namespace

absl::Status why_no_cuda() { return absl::OkStatus(); }
absl::Status take_kept_device_errors() { return cuda::take_kept_errors(); }
void own_thread_of_devices() { kc::own_thread_of_devices(); }

absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device) {
  BASCULE_TRY(cuda::find_device(device).status());
  return CudaQueue::open(device);
}

}  // namespace bascule::inline v0
