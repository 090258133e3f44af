// TestModel: a trainer's tensors whose bytes are a function of (generation, tensor name), and a check that a reader
// sees one generation and no mixture.
//
// A generation is a number, 1 or more, that the test chooses and the model itself contains. Except in BOOL tensors no
// byte is zero, so unwritten memory is detected at once. Among the tensors are every dtype, sizes that fill no cache
// line, scalars, an empty one, one that is not contiguous, names in UTF-8, and two names of one storage.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::test {

enum class ModelSize {
  kTiny,   // a few kilobytes
  kSmall,  // some 300 KiB: slots of many pages, checked in a fraction of a millisecond
  kLarge,  // some 8 MiB
};

class TestModel {
 public:
  explicit TestModel(ModelSize size = ModelSize::kSmall);

  // The tensors that a worker that knows the model expects. A tied storage is listed under both names.
  const std::vector<TensorSpec>& specs() const { return specs_; }

  // Moves the tensors to a device. Call it before source().
  void place_on(int device);

  // Writes every element anew, as an optimizer's step does.
  void step(std::uint64_t generation);
  // Moves every storage to another address, as if a module had been copied.
  void move_storage();

  // Returns views of this model, which must outlive them, for Sender::register_model. With slots=1 the storage moves
  // into the slot.
  std::unique_ptr<TensorSource> source();

 private:
  friend class TestModelSource;
  std::vector<TensorSpec> specs_;
  std::vector<std::vector<std::byte>> own_;    // by tensor; empty where tied
  std::vector<std::span<std::byte>> storage_;  // where the bytes are now: in own_, or in a slot
  int device_ = kHost;
  std::vector<std::shared_ptr<std::byte>> on_device_;  // by tensor; storage_ holds the same bytes
  std::vector<std::byte*> places_;                     // the addresses: in on_device_, or in a slot
  std::shared_ptr<void> keeps_;                        // keeps that slot
  std::vector<TensorView> views_;                      // into specs_ and storage_
  std::vector<std::int64_t> transposed_strides_;

  void make_views();
  void allocate_on_device();
  void upload_all();
};

// Writes generation `generation` into contiguous tensors, such as the tensors of a slot on loan.
void write_generation(std::span<const MutableTensorView> tensors, std::uint64_t generation);

// Returns the generation that all `tensors` hold. DATA_LOSS names the first byte that is from another generation or
// from none, and its tensor; INVALID_ARGUMENT names the first tensor that differs from TestModel(size).
absl::StatusOr<std::uint64_t> generation_of(std::span<const TensorView> tensors, ModelSize size);

}  // namespace bascule::test
