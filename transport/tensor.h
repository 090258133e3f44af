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
#include <bascule/kernels/dtype.h>

struct CUstream_st;

namespace bascule::inline v0 {

inline constexpr int kHost = -1;  // host memory, in place of a device's ordinal
using Stream = CUstream_st*;      // the user's cudaStream_t; null: the device's default ("legacy") stream

struct TensorSpec {
  std::string name;  // UTF-8, not empty
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// A tensor's elements, in host memory or on a device of this process. Valid as long as the tensor.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // elements; empty means contiguous in C order
  const std::byte* data = nullptr;
  int device = kHost;  // the device on which `data` lies, or kHost
};

// Like TensorView, for writable memory; always contiguous.
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

// The argument of register_model(). Every send gets new views, so a storage may move between sends.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The same tensors in the same order at every call; the span is valid until the next call.
  virtual absl::StatusOr<std::span<const TensorView>> views() = 0;
  // Changes whenever a name, type, shape, stride or device may differ from the last views(), so that a send compares
  // them only then; addresses may change at any time. 0: unknown, every send compares.
  virtual std::uint64_t edition() const { return 0; }
  // For tensors on a device: the stream there that writes them, as of the last views(). A send sends the result of the
  // work queued on it before; later work waits on the device until the tensors were read. A send is refused while the
  // stream is being captured into a graph; with the default stream, while any blocking stream is.
  virtual Stream stream() const;
  // For slots=1: moves each tensor's elements to its target, contiguous, in the order of views(); the tensors then stay
  // there. Tied tensors have one target. `keeps` keeps that memory alive. The user of the tensors must hold it, because
  // the tensors outlive the sender and its source. An implementation takes `keeps` before it moves the first tensor,
  // even if a later one fails, and releases the old memory only after the last. UNIMPLEMENTED: the tensors cannot be
  // moved.
  virtual absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps);
};

// A tensor whose owner gives its address.
struct BorrowedTensor {
  TensorSpec spec;
  std::vector<std::int64_t> strides{};  // elements; empty: contiguous in C order
  const void* data = nullptr;
  int device = kHost;
};

// Tensors of a program that tracks where they lie, such as a binding to another language: a send compares no names or
// shapes. The program keeps a pointer to this source, which is valid as long as its sender, and reports each change
// between two calls of the sender.
class BorrowedTensors final : public TensorSource {
 public:
  explicit BorrowedTensors(std::vector<BorrowedTensor> tensors, Stream stream = nullptr);
  BorrowedTensors(BorrowedTensors&&) = default;  // a copy's views would lie in the original
  BorrowedTensors& operator=(BorrowedTensors&&) = default;
  // Tensor `i` now lies at `data`, with the same or the given strides. Its shape and type stay.
  void move(std::size_t i, const void* data) { views_[i].data = static_cast<const std::byte*>(data); }
  void move(std::size_t i, const void* data, std::vector<std::int64_t> strides);
  void set_stream(Stream stream) { stream_ = stream; }  // the one that writes the tensors on a device

  absl::StatusOr<std::span<const TensorView>> views() override;
  std::uint64_t edition() const override { return edition_; }
  Stream stream() const override { return stream_; }

 private:
  std::vector<BorrowedTensor> tensors_;
  std::vector<TensorView> views_;
  Stream stream_;
  std::uint64_t edition_ = 1;
};

// Tensors of a program without LibTorch: a spec and an address each.
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

// The memory of parameters that slots=1 moved, for a program without LibTorch. Pointers keep nothing alive: the program
// holds this object as long as it uses the parameters, even after the sender is gone. Each set of pointers has one; a
// later sender that moves the same pointers replaces its content. It stays empty if nothing is moved.
struct ParameterMemory {
  std::shared_ptr<void> memory{};
};

// Contiguous tensors of a program without LibTorch that slots=1 may move: a spec each, and the program's own pointer to
// it, which is set to the tensor's new place. The pointers must outlive the source.
class Parameters : public TensorSource {
 public:
  Parameters(Parameters&&) = default;  // a copy's views would lie in the original
  Parameters& operator=(Parameters&&) = default;
  absl::StatusOr<std::span<const TensorView>> views() final;
  // FAILED_PRECONDITION: no `memory` was given.
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) final;

 protected:
  Parameters(int device, std::vector<std::pair<TensorSpec, void**>> tensors, std::shared_ptr<ParameterMemory> memory);

  struct Move {
    std::byte* to = nullptr;
    const void* from = nullptr;
    std::uint64_t bytes = 0;
  };
  virtual absl::Status move(std::span<const Move> moves) = 0;  // returns when all are done

 private:
  std::vector<TensorSpec> specs_;
  std::vector<void**> pointers_;
  std::vector<TensorView> views_;
  std::shared_ptr<ParameterMemory> memory_;
};

class HostParameters final : public Parameters {
 public:
  HostParameters(std::vector<std::pair<TensorSpec, void**>> tensors, std::shared_ptr<ParameterMemory> memory)
      : Parameters(kHost, std::move(tensors), std::move(memory)) {}

 private:
  absl::Status move(std::span<const Move> moves) override;
};

inline std::unique_ptr<TensorSource> host_tensors(std::vector<std::pair<TensorSpec, const void*>> tensors) {
  return std::make_unique<HostTensors>(std::move(tensors));
}

}  // namespace bascule::inline v0
