// A model to be sent: a trainer's tensors, in host memory or on a GPU, with new content at every step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/content.h>
#include <bascule/bench/gpu.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/shards.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {

// A list of tensors. In the trainer they have `bytes` bytes in all, in elements of `dtype`.
struct ModelShape {
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0;
  DType dtype = DType::kBF16;  // F32 or BF16
  // Decoder: twelve tensors per layer in the proportions of a 1.5-billion-parameter decoder, including norms and
  // biases, and an embedding. Equal: all of one size.
  enum class Kind { kDecoder, kEqual } kind = Kind::kDecoder;
};

// A tensor's name and its size in elements. The sizes of a shape's tensors sum to bytes / element size, and none is 0.
// tensor_sizes() returns INVALID_ARGUMENT if there are fewer elements than tensors.
struct TensorSize {
  std::string name;
  std::uint64_t elements = 0;
};
absl::StatusOr<std::vector<TensorSize>> tensor_sizes(const ModelShape& shape);

// A small model for measurements that depend only on the number of tensors.
ModelShape fleet_model(std::uint64_t tensors);
absl::StatusOr<std::vector<TensorSpec>> fleet_specs(std::uint64_t tensors);  // the tensors that its workers expect

class Model {
 public:
  // Allocates the model with every page present, on `gpu` if that is not null. `pool` must outlive it.
  static absl::StatusOr<Model> make(const ModelShape& shape, std::uint64_t seed, kernels::ThreadPool& pool,
                                    std::shared_ptr<Gpu> gpu = nullptr);

  // Does what an optimizer's step does: writes every element of every tensor. Only a GPU returns errors.
  absl::Status step(std::uint64_t generation);

  const ModelShape& shape() const { return shape_; }
  // Returns the bytes that a flat copy reads: as many as the tensors have, starting at the first tensor.
  std::span<const std::byte> bytes() const { return {memory_.get(), shape_.bytes}; }
  Gpu* gpu() const { return gpu_.get(); }  // null: host memory
  // Returns views into this model; call it once. With slots=1 the tensors move, and free_memory() frees their old
  // memory.
  std::unique_ptr<TensorSource> source();
  // The part of each tensor that one of `ranks` ranks holds: equal shares, in order. Host memory.
  std::vector<ShardedTensor> shards(std::size_t rank, std::size_t ranks) const;
  void free_memory() { memory_.reset(); }

 private:
  struct Piece {  // written by one thread at a time
    std::size_t tensor = 0;
    std::uint64_t begin = 0, count = 0;  // elements of the tensor
  };

  ModelShape shape_;
  std::uint64_t seed_ = 0;
  kernels::ThreadPool* pool_ = nullptr;
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<ParameterMemory> moved_ = std::make_shared<ParameterMemory>();  // the tensors' memory with slots=1
  std::vector<TensorSize> sizes_;
  std::vector<void*> tensors_;  // the address of each
  std::vector<Piece> pieces_;
};

}  // namespace bascule::bench
