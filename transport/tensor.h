// Tensors as the transport sees them: a name, a type, a shape, and where the elements lie. Specs own their text; views
// own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

struct CUstream_st;

namespace bascule {

inline constexpr int kHost = -1;  // where others say the ordinal of a device: memory of the host
using Stream = CUstream_st*;      // a cudaStream_t of the user's; null: the device's default ("legacy") stream

struct TensorSpec {
  std::string name;  // UTF-8, not empty
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// A tensor's elements, in host memory or on a device of this process. Valid as long as the tensor that it was made
// from.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // elements; empty means contiguous in C order
  const std::byte* data = nullptr;
  int device = kHost;  // else the device that `data` is an address of
};

// As TensorView, for memory that may be written; always contiguous.
struct MutableTensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::int64_t> shape;
  std::byte* data = nullptr;
  int device = kHost;
};

std::uint64_t element_count(std::span<const std::int64_t> shape);
std::uint64_t byte_count(DType dtype, std::span<const std::int64_t> shape);
std::string to_string(const TensorSpec&);  // "model.embed_tokens.weight BF16 [151936, 896]"
std::string to_string(const TensorView&);
std::string place_name(int device);  // "host memory", "device 0"

// What register_model takes: it yields views afresh at each send, so that a storage that moved is followed.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The same tensors in the same order at every call; the span is valid until the next call.
  virtual absl::StatusOr<std::span<const TensorView>> views() = 0;
  // Of tensors on a device: the stream that writes them, as of the last views(). What it was given by then is sent;
  // what it is given later waits, on the device, until the tensors were read.
  virtual Stream stream() const;
  // For slots=1: moves each tensor's elements to its target, in the order of views() and contiguous, and lies there
  // from now on; tied tensors have one target. `keeps` keeps that memory alive. UNIMPLEMENTED: they cannot be moved.
  virtual absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps);
};

// Tensors of a program without LibTorch: specs, and an address for each.
class HostTensors final : public TensorSource {
 public:
  explicit HostTensors(std::vector<std::pair<TensorSpec, const void*>> tensors);
  HostTensors(HostTensors&&) = default;  // a copy's views would lie in the original
  HostTensors& operator=(HostTensors&&) = default;
  absl::StatusOr<std::span<const TensorView>> views() override;

 private:
  std::vector<TensorSpec> specs_;
  std::vector<TensorView> views_;
};

// Tensors of a program without LibTorch that slots=1 may move: specs, and the program's own pointer to each, which
// follows. Contiguous.
class HostParameters final : public TensorSource {
 public:
  explicit HostParameters(std::vector<std::pair<TensorSpec, void**>> tensors);
  HostParameters(HostParameters&&) = default;
  HostParameters& operator=(HostParameters&&) = default;
  absl::StatusOr<std::span<const TensorView>> views() override;
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) override;

 private:
  std::vector<TensorSpec> specs_;
  std::vector<void**> pointers_;
  std::vector<TensorView> views_;
  std::shared_ptr<void> keeps_;
};

inline std::unique_ptr<TensorSource> host_tensors(std::vector<std::pair<TensorSpec, const void*>> tensors) {
  return std::make_unique<HostTensors>(std::move(tensors));
}

}  // namespace bascule
