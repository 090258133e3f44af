#include <bascule/schemes/nccl/cuda_place.h>

#include <utility>

#include <bascule/transport/cuda/device_slot.h>
#include <bascule/transport/cuda/stream.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

class CudaLane final : public Lane {
 public:
  explicit CudaLane(cuda::UniqueStream stream) : stream_(std::move(stream)) {}

  Stream stream() const override { return stream_.get(); }
  absl::StatusOr<std::unique_ptr<DeviceMark>> mark() override {
    BASCULE_ASSIGN(std::unique_ptr<DeviceMark> made, make_device_mark(stream_.device()));
    BASCULE_TRY(made->record(stream_.get()));
    return made;
  }

 private:
  cuda::UniqueStream stream_;
};

class CudaDigester final : public Digester {
 public:
  explicit CudaDigester(std::unique_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {}

  absl::Status digest(Stream stream, std::span<const std::byte> slot, std::uint64_t begin, std::uint64_t end) override {
    return queue_->digest_behind(stream, slot, begin, end);
  }
  absl::StatusOr<Digest> finish(Deadline deadline) override {
    BASCULE_ASSIGN(const std::optional<Digest> digest, queue_->finish(deadline));
    if (!digest) return absl::InternalError("nccl: the slot was not digested to its end");
    return *digest;
  }

 private:
  std::unique_ptr<DeviceQueue> queue_;
};

class CudaPlace final : public Place {
 public:
  explicit CudaPlace(cuda::Device device) : device_(std::move(device)) {}

  int device() const override { return device_.ordinal; }
  absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) override {
    return cuda::make_device_slot(device_, bytes, cuda::ForNetwork::kYes);
  }
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) override {
    absl::StatusOr<std::shared_ptr<std::byte>> made =
        cuda::allocate_mapped(device_.ordinal, bytes, cuda::ForNetwork::kYes);
    if (!made.ok()) return annotate(made.status(), cat("memory for ", what));
    return made;
  }
  // NCCL's kernels need room on the device, which a pack leaves free only at its end, unless they have the priority.
  absl::StatusOr<std::unique_ptr<Lane>> open_lane(bool sends) override {
    using Priority = cuda::UniqueStream::Priority;
    BASCULE_ASSIGN(cuda::UniqueStream stream,
                   cuda::UniqueStream::make(device_.ordinal, sends ? Priority::kHighest : Priority::kLow));
    return std::make_unique<CudaLane>(std::move(stream));
  }
  absl::StatusOr<std::unique_ptr<Digester>> open_digester() override {
    BASCULE_ASSIGN(std::unique_ptr<DeviceQueue> queue, open_device(device_.ordinal));
    return std::make_unique<CudaDigester>(std::move(queue));
  }

 private:
  const cuda::Device device_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Place>> cuda_place(int device) {
  if (device == kHost)
    return unimplemented(
        "nccl: this end is in host memory; a worker names the GPU that it reads on "
        "(ReceiverOptions::device, or targets there), a trainer has its tensors on one; for CPUs use shm");
  BASCULE_ASSIGN(cuda::Device found, cuda::find_device(device));
  return std::make_shared<CudaPlace>(std::move(found));
}

}  // namespace bascule::inline v0::nccl
