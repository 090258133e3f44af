#include <bascule/transport/cuda/host_window.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <bascule/kernels/control_group.h>
#include <bascule/kernels/pack.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

// Copies under way together: enough to keep a copy engine busy. All copies of a large model at once would fill the
// driver's queue, and after the deadline they would write to a slot that already belongs to another version.
constexpr std::uint64_t kMostCopiesAhead = 32;

// A piece takes half a millisecond: by sleeping, this thread leaves the driver free for the trainer's thread.
absl::Status wait_asleep(const UniqueEvent& event, Deadline deadline) {
  while (true) {
    BASCULE_ASSIGN(const bool passed, event.passed());
    if (passed) return absl::OkStatus();
    if (deadline.passed()) return deadline_exceeded("device ", event.device(), " did not reach an event in time");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

// ---- buffers ----

PinnedBuffers::PinnedBuffers() : pool_(static_cast<int>(std::clamp(kernels::usable_cores() / 2, 1, 8))) {}

absl::StatusOr<std::shared_ptr<PinnedBuffers>> PinnedBuffers::make(int device) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  std::shared_ptr<PinnedBuffers> made(new PinnedBuffers());
  BASCULE_TRY(annotate(cuda_status(kernels::cuda::PinnedMemory::make(kCount * kBytes, &made->memory_)),
                       "pinned buffers for copies"));
  for (std::size_t i = 0; i < kCount; ++i) {
    BASCULE_ASSIGN(UniqueEvent event, UniqueEvent::make(device));
    made->events_.push_back(std::move(event));
  }
  return made;
}

void PinnedBuffers::fill(std::byte* buffer, const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kPiece = std::uint64_t{512} << 10;
  pool_.run((bytes + kPiece - 1) / kPiece, [&](std::size_t piece) {
    const std::uint64_t begin = piece * kPiece;
    std::memcpy(buffer + begin, from + begin, std::min(kPiece, bytes - begin));
  });
}

void PinnedBuffers::empty(const std::byte* buffer, std::byte* to, std::uint64_t bytes) {
  const kernels::Segment run{.tensor_dtype = DType::kU8,
                             .slot_dtype = DType::kU8,
                             .elements = bytes,
                             .shape = {static_cast<std::int64_t>(bytes)},
                             .tensor_strides = {1},
                             .slot_strides = {1}};
  kernels::pack({&run, 1}, {&buffer, 1}, {to, bytes}, /*want_digest=*/false, pool_);
}

// ---- windows ----

absl::StatusOr<std::shared_ptr<CudaWindow>> CudaWindow::make(int device, std::span<const std::byte> bytes, int place,
                                                             Access access, std::shared_ptr<PinnedBuffers>& buffers) {
  std::shared_ptr<CudaWindow> made(new CudaWindow());
  made->device_ = device;
  made->piece_bytes_ = place == kHost ? kHostPieceBytes : kDevicePieceBytes;
  made->bytes_ = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  BASCULE_ASSIGN(made->used_, UniqueEvent::make(device));
  const auto reached = [&]() -> absl::StatusOr<std::shared_ptr<CudaWindow>> {
    made->reached_ = true;
    for (std::uint64_t begin = 0; begin < bytes.size(); begin += made->piece_bytes_) {
      BASCULE_ASSIGN(UniqueEvent event, UniqueEvent::make(device));
      made->copied_.push_back(std::move(event));
    }
    return made;
  };
  if (place != kHost) {
    made->how_ = cat("copied by device ", device, " from its peer GPU, device ", place);
    return reached();
  }
  absl::StatusOr<HostRegistration> registration = HostRegistration::make(device, bytes, access);
  if (registration.ok()) {
    made->registration_ = *std::move(registration);
    made->how_ = cat("registered with device ", device);
    return reached();
  }
  if (is_sticky(registration.status())) return registration.status();
  if (!buffers) {
    BASCULE_ASSIGN(buffers, PinnedBuffers::make(device));
  }
  made->buffers_ = buffers;
  made->how_ = cat("copied through pinned buffers of device ", device, " (", message_of(registration.status()), ")");
  return made;
}

CudaWindow::~CudaWindow() {
  if (used_.get() != nullptr) (void)wait_asleep(used_, Deadline(kUnderWay));
}

// Some copies may be under way even after an error.
absl::Status CudaWindow::copy_out(const std::byte* slot, std::span<const Milestone> written, Stream stream,
                                  std::atomic<std::uint64_t>& bytes_done, Deadline deadline) {
  if (bytes_.empty()) return absl::OkStatus();
  absl::Status copied = enqueue_out(slot, written, stream, bytes_done, deadline);
  BASCULE_TRY(used_.record(stream));
  // Otherwise they could write to a slot that already belongs to another version.
  if (!copied.ok()) (void)wait_asleep(used_, Deadline(kUnderWay));
  return copied;
}

absl::Status CudaWindow::copy_in(std::uint64_t begin, std::uint64_t end, std::byte* slot, Stream stream) {
  absl::Status enqueued = enqueue_in(begin, end, slot, stream);
  BASCULE_TRY(used_.record(stream));
  return enqueued;
}

absl::Status CudaWindow::enqueue_out(const std::byte* slot, std::span<const Milestone> written, Stream stream,
                                     std::atomic<std::uint64_t>& bytes_done, Deadline deadline) {
  // Even if the trainer's stream is late, nothing may be enqueued that writes the slot once it belongs to another
  // version.
  BASCULE_TRY(wait_asleep(written.front().event, deadline));
  const std::uint64_t step = reached_ ? piece_bytes_ : PinnedBuffers::kBytes;
  const std::uint64_t steps = (bytes_.size() + step - 1) / step;
  const std::uint64_t ahead = reached_ ? kMostCopiesAhead : PinnedBuffers::kCount;
  const std::uint64_t first = buffers_ ? std::exchange(buffers_->next, buffers_->next + steps) : 0;
  std::uint64_t next = 0, awaited = written.front().end;  // bytes for which the stream waits, or has waited
  for (std::uint64_t done = 0; done < steps; ++done) {
    for (; next < std::min(done + ahead, steps); ++next) {
      const std::uint64_t begin = next * step, end = std::min(begin + step, bytes_.size());
      for (; awaited < end; awaited = written.front().end) {
        written = written.subspan(1);
        BASCULE_TRY(written.front().event.let_wait(stream));
      }
      std::byte* const to = reached_ ? bytes_.data() + begin : buffers_->at(first + next);
      BASCULE_CUDA(cudaMemcpyAsync(to, slot + begin, end - begin, cudaMemcpyDefault, stream));
      BASCULE_TRY((reached_ ? copied_[next] : buffers_->event(first + next)).record(stream));
    }
    const std::uint64_t begin = done * step, end = std::min(begin + step, bytes_.size());
    BASCULE_TRY(wait_asleep(reached_ ? copied_[done] : buffers_->event(first + done), deadline));
    if (buffers_) buffers_->empty(buffers_->at(first + done), bytes_.data() + begin, end - begin);
    bytes_done.store(end, std::memory_order_release);
  }
  return absl::OkStatus();
}

absl::Status CudaWindow::enqueue_in(std::uint64_t begin, std::uint64_t end, std::byte* slot, Stream stream) {
  if (reached_) {
    BASCULE_CUDA(cudaMemcpyAsync(slot + begin, bytes_.data() + begin, end - begin, cudaMemcpyDefault, stream));
    return absl::OkStatus();
  }
  for (; begin < end; begin += PinnedBuffers::kBytes) {
    const std::uint64_t bytes = std::min(PinnedBuffers::kBytes, end - begin), number = buffers_->next++;
    BASCULE_TRY(wait_asleep(buffers_->event(number), Deadline(kUnderWay)));  // until its last copy has left it
    buffers_->fill(buffers_->at(number), &bytes_[begin], bytes);
    BASCULE_CUDA(cudaMemcpyAsync(slot + begin, buffers_->at(number), bytes, cudaMemcpyHostToDevice, stream));
    BASCULE_TRY(buffers_->event(number).record(stream));
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0::cuda
