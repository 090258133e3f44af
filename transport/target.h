// How the tensors of an engine that copies are made of the sender's: one of them whole, a box out of one, or several
// joined; cast where the types differ.
//
//   the sender's gate_proj [I, H], up_proj [I, H], and the engine's gate_up_proj of rank 1 of 2, [I, H]:
//
//   {.name = "gate_up_proj", .dtype = …, .shape = {I, H}, .data = …,
//    .parts = {{"gate_proj", {{.dim = 0, .begin = I / 2, .end = I}}}, {"up_proj", {{.dim = 0, .begin = I / 2, .end =
//    I}}}}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/tensor.h"

namespace bascule {

struct Slice {
  int dim = 0;
  std::int64_t begin = 0, end = 0;  // elements [begin, end) of that dimension
};

// A box out of one of the sender's tensors; without slices all of it.
struct Part {
  std::string tensor{};  // the sender's name for it, or a name tied to it
  std::vector<Slice> slices{};
};

// One tensor of the engine's own, contiguous in C order. Every field has an initialiser, so that a user who names some
// of them gets no warning.
struct TargetTensor {
  std::string name{};
  DType dtype = DType::kF32;          // floating-point tensors are cast to it
  std::vector<std::int64_t> shape{};  // empty: a scalar
  std::byte* data = nullptr;          // borrowed. Two targets may be one storage, if they are made of the same
  std::vector<Part> parts{};          // empty: the sender's tensor of the same name, whole
  int join_dim = 0;                   // along which several parts follow each other
  int device = kHost;                 // that `data` is an address of; the same for all targets

  TensorSpec spec() const { return {name, dtype, shape}; }
};

// When the copy is made.
enum class Apply {
  kCommit,      // inside commit(): one model in memory, and the engine stands still for one copy
  kBackground,  // before it, into a second set of tensors: two models in memory, and no stall
};

// What can be said of targets before a sender is there. INVALID_ARGUMENT names the target: a name twice, empty or not
// UTF-8, no data, a negative dimension, a slice that ends before it begins, memory shared with another one.
absl::Status check_targets(std::span<const TargetTensor> targets);

}  // namespace bascule
