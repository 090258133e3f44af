// TestModel: a trainer's tensors whose bytes are a function of (generation, tensor name), and the check that what
// a reader sees is one generation and no mixture.
//
// A generation is a number that the test chooses, 1 or more, and that stands in the model itself. No byte is ever
// zero (but in BOOL tensors), so memory that nobody wrote is seen at once. Among the tensors: every dtype, sizes
// that fill no cache line, scalars, an empty one, one that is not contiguous, names in UTF-8, two names of one
// storage.
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

  // What a worker that knows the model expects; under both names of a tied storage.
  const std::vector<TensorSpec>& specs() const { return specs_; }

  // Before source(): the tensors lie on a device from now on.
  void place_on(int device);

  // An optimizer's step: every element is written anew.
  void step(std::uint64_t generation);
  // Moves every storage to other addresses, as a module that was copied.
  void move_storage();

  // For Sender::register_model. Views of this model, which must outlive it. With slots=1 the storage moves into the
  // slot.
  std::unique_ptr<TensorSource> source();

 private:
  friend class TestModelSource;
  std::vector<TensorSpec> specs_;
  std::vector<std::vector<std::byte>> own_;    // by tensor; empty where tied
  std::vector<std::span<std::byte>> storage_;  // where it is now: own_, or a slot
  int device_ = kHost;
  std::vector<std::shared_ptr<std::byte>> on_device_;  // by tensor; storage_ is what was written there
  std::vector<std::byte*> places_;                     // likewise: on_device_, or a slot
  std::shared_ptr<void> keeps_;                        // that slot
  std::vector<TensorView> views_;                      // into specs_ and storage_
  std::vector<std::int64_t> transposed_strides_;

  void make_views();
  void allocate_on_device();
  void upload_all();
};

// Writes generation `generation` into contiguous tensors: a slot on loan.
void write_generation(std::span<const MutableTensorView> tensors, std::uint64_t generation);

// The generation that all of `tensors` are of. DATA_LOSS names the first tensor and byte that are of another, or of
// none; INVALID_ARGUMENT the first tensor that is not as in TestModel(size).
absl::StatusOr<std::uint64_t> generation_of(std::span<const TensorView> tensors, ModelSize size);

}  // namespace bascule::test
