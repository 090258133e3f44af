// For engines that copy: describes how each of the engine's tensors is made from the sender's tensors, either from one
// whole tensor, from a box of one, or from several joined. Elements are cast if the types differ.
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
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

struct Slice {
  int dim = 0;
  std::int64_t begin = 0, end = 0;  // elements [begin, end) of that dimension
};

// A box of one of the sender's tensors, or the whole tensor if there are no slices.
struct Part {
  std::string tensor{};  // the sender's name for it, or a tied name
  std::vector<Slice> slices{};
};

// One of the engine's own tensors, contiguous in C order. Every field has an initialiser, so code that names only some
// of them gets no warning.
struct TargetTensor {
  std::string name{};
  DType dtype = DType::kF32;          // floating-point tensors are cast to it
  std::vector<std::int64_t> shape{};  // empty: a scalar
  std::byte* data = nullptr;          // borrowed; two targets with the same parts may share it
  std::vector<Part> parts{};          // empty: the sender's tensor of the same name, whole
  int join_dim = 0;                   // the dimension along which several parts are joined
  int device = kHost;                 // the device on which `data` lies; the same for all targets

  TensorSpec spec() const { return {name, dtype, shape}; }
};

// When versions are copied into the targets.
enum class Apply {
  kCommit,      // inside commit(): one model in memory, and the engine waits for one copy
  kBackground,  // before commit(), into a second set of tensors: two models in memory, and no stall
};

// Checks what can be checked without a sender. Returns INVALID_ARGUMENT, naming the target, for a name that is empty,
// not UTF-8 or duplicate, missing data, a negative dimension, a slice that ends before it begins, or memory shared with
// another target.
absl::Status check_targets(std::span<const TargetTensor> targets);

}  // namespace bascule::inline v0
