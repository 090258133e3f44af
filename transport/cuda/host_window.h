// The CUDA implementation of HostWindow: makes memory of the host or of a peer GPU reachable for a device's copy
// engines.
//
//   registered, or a peer GPU's:  device ◀── copies of piece_bytes() ──▶ the memory itself
//   otherwise:                    device ◀── copies of a buffer ──▶ pinned buffers ◀── threads ──▶ the memory
//
// Threads: the same rules as for the DeviceQueue that the window belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/cuda/host_registration.h>
#include <bascule/transport/cuda/milestones.h>
#include <bascule/transport/cuda/stream.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>

namespace bascule::inline v0::cuda {

// Pinned buffers, used in turn, that one queue's windows share if their memory cannot be registered.
class PinnedBuffers {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;  // per buffer
  static constexpr std::size_t kCount = 4;

  static absl::StatusOr<std::shared_ptr<PinnedBuffers>> make(int device);

  std::byte* at(std::uint64_t number) const { return memory_.as<std::byte>() + number % kCount * kBytes; }
  UniqueEvent& event(std::uint64_t number) { return events_[number % kCount]; }  // recorded after its last copy
  // Both copy with all threads. From a buffer they go past the caches: the next reader of the memory is often a
  // device, and the lines that are overwritten need not be read first.
  void fill(std::byte* buffer, const std::byte* from, std::uint64_t bytes);
  void empty(const std::byte* buffer, std::byte* to, std::uint64_t bytes);
  std::uint64_t next = 0;  // the buffer to use next

 private:
  PinnedBuffers();

  kernels::cuda::PinnedMemory memory_;
  std::vector<UniqueEvent> events_;
  kernels::ThreadPool pool_;
};

class CudaWindow final : public HostWindow {
 public:
  // Makes `buffers` if they are null and the window needs them. `place` is as in DeviceQueue::open_window().
  static absl::StatusOr<std::shared_ptr<CudaWindow>> make(int device, std::span<const std::byte> bytes, int place,
                                                          Access access, std::shared_ptr<PinnedBuffers>& buffers);
  ~CudaWindow() override;

  const std::string& how() const override { return how_; }
  std::uint64_t piece_bytes() const override { return piece_bytes_; }
  std::uint64_t bytes() const { return bytes_.size(); }

  // `written` has the milestones of the work that writes the slot, to its end.
  absl::Status copy_out(const std::byte* slot, std::span<const Milestone> written, Stream stream,
                        std::atomic<std::uint64_t>& bytes_done, Deadline deadline);
  absl::Status copy_in(std::uint64_t begin, std::uint64_t end, std::byte* slot, Stream stream);

 private:
  CudaWindow() = default;
  absl::Status enqueue_out(const std::byte* slot, std::span<const Milestone> written, Stream stream,
                           std::atomic<std::uint64_t>& bytes_done, Deadline deadline);
  absl::Status enqueue_in(std::uint64_t begin, std::uint64_t end, std::byte* slot, Stream stream);

  int device_ = -1;
  std::span<std::byte> bytes_;  // written only if it was opened for writing
  std::string how_;
  std::uint64_t piece_bytes_ = 0;
  bool reached_ = false;  // the copy engines reach the memory directly
  std::optional<HostRegistration> registration_;
  std::vector<UniqueEvent> copied_;         // one event per piece, if registered
  std::shared_ptr<PinnedBuffers> buffers_;  // null if registered
  UniqueEvent used_;                        // recorded after the last copy
};

}  // namespace bascule::inline v0::cuda
