// The measurements' own work on a GPU: it allocates models, makes, reads and checks their content (content.h), and
// makes the plain copies that serve as baselines. In a build without CUDA, open() returns an error.
//
// One thread at a time. Writes, reads and checks go to the device's default stream, like a trainer's or an engine's
// work. Each call waits for its work unless it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/bench/baselines.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {

// Elements of one tensor: the first element's word, the trainer's type, and the type in memory.
struct Elements {
  std::uint32_t first_word = 0;
  std::uint64_t count = 0;
  DType trainer = DType::kF32, memory = DType::kF32;
};

class Gpu {
 public:
  // Returns UNIMPLEMENTED if this build has no CUDA, NOT_FOUND if there is no such GPU.
  static absl::StatusOr<std::shared_ptr<Gpu>> open(int device);

  virtual ~Gpu() = default;
  virtual int device() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H200"

  // The memory is freed with the last copy of the pointer.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes) = 0;
  virtual absl::StatusOr<std::uint64_t> free_bytes() = 0;  // of the whole device

  virtual absl::Status write(const Elements& elements, std::byte* to) = 0;  // returns at once
  // Starts to compare, and returns at once; wrong_element() gives the result.
  virtual absl::Status compare(const Elements& elements, const std::byte* with) = 0;
  // Returns the index of a wrong element, if compare() has found any; nullopt if all were right.
  virtual absl::StatusOr<std::optional<std::uint64_t>> wrong_element() = 0;
  virtual absl::Status read(const std::byte* data, std::uint64_t bytes) = 0;  // every byte, as a token reads weights
  virtual absl::Status wait() = 0;

  // The source for register_model(). Its pointers are updated when slots=1 moves the tensors.
  virtual std::unique_ptr<TensorSource> source(std::vector<std::pair<TensorSpec, void**>> tensors,
                                               std::shared_ptr<ParameterMemory> memory) = 0;
};

// Memory of a GPU, shared like a slot, and its address on a peer GPU.
struct SharedMemory {
  std::shared_ptr<std::byte> data;           // to be written by its own GPU
  std::shared_ptr<const std::byte> of_peer;  // to be read by the peer GPU
};
// Returns UNIMPLEMENTED if the GPU `peer` cannot reach memory of `device`.
absl::StatusOr<SharedMemory> share_with_peer(int device, int peer, std::uint64_t bytes);

// Makes one cudaMemcpyAsync of `bytes` bytes from memory of `from` to memory of `to`, timed by device events. On the
// host it uses its own pinned memory, so run() ignores its source if `from` is the host.
absl::StatusOr<std::unique_ptr<PlainCopy>> make_device_copy(int from, int to, std::uint64_t bytes);

}  // namespace bascule::bench
