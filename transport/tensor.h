// Tensors as the transport sees them: a name, a type, a shape, and where the elements lie. Specs own their strings;
// views own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

inline constexpr int kHost = -1;  // used as a device number, this means host memory
inline constexpr std::size_t kMostTensorNameBytes = 4096;
inline constexpr std::uint64_t kMostModelBytes = std::uint64_t{1} << 62;
using Stream = CUstream_st*;  // the user's cudaStream_t; null: the device's default ("legacy") stream

struct TensorSpec {
  std::string name;  // UTF-8, of 1 to kMostTensorNameBytes bytes
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct LowRankView;

// Where a tensor's elements lie, in host memory or on a device of this process. Valid as long as the tensor itself.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // elements; empty means contiguous in C order
  const std::byte* data = nullptr;
  int device = kHost;  // the device on which `data` lies, or kHost
  // Arithmetic of a send, in F32 before the only rounding (kernels/arithmetic.h): each element is multiplied by `scale`
  // or, if `delta` is given, the scaled product is added to it. The tensor itself does not change. Needs F32, BF16 or
  // F16 on both sides, and two slots or more.
  float scale = 1;
  const LowRankView* delta = nullptr;
};

// A product of two matrices that a send adds to a tensor, as the merge of a LoRA adapter does: w + scale * b a. The
// tensor's first dimension are its rows; all others together are its columns. Both factors lie where the tensor lies.
struct LowRankView {
  TensorView b;  // [rows, rank]
  TensorView a;  // [rank, columns]
  float scale = 1;
};

// The factors b and a of each view with a product, in the order of `views`. In a list of addresses for kernels::pack
// they follow the views: b of the n-th product has the index views.size() + 2n.
std::vector<TensorView> factors_of(std::span<const TensorView> views);

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
// Returns byte_count(). INVALID_ARGUMENT, naming the tensor, if a dimension is negative, or if those that are not 0
// multiply to more than 2^62 bytes. So no product of the dimensions, such as a stride, overflows.
absl::StatusOr<std::uint64_t> checked_byte_count(std::string_view name, DType dtype,
                                                 std::span<const std::int64_t> shape, std::string_view kind = "tensor");
// INVALID_ARGUMENT: empty, not UTF-8, or too long.
absl::Status check_tensor_name(std::string_view name);
std::string to_string(const TensorSpec&);              // "model.embed_tokens.weight BF16 [151936, 896]"
void append_text(const TensorSpec&, std::string& to);  // the same
std::string to_string(const TensorView&);
std::string place_name(int device);  // "host memory", "device 0"

// What register_model() takes. Every send calls views() again, so a tensor's storage may move between sends.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Returns the same tensors in the same order at every call. The span is valid until the next call.
  virtual absl::StatusOr<std::span<const TensorView>> views() = 0;
  // A number that changes whenever a name, type, shape, stride or device may differ from the last views(). A send
  // compares all of these only if the number changed; addresses may change without it. 0 means unknown: every send
  // compares.
  virtual std::uint64_t edition() const { return 0; }
  // A number that changes whenever an address may differ from the last views(). If neither this number nor edition()
  // changed, a send does not even read the views. 0 means unknown: every send reads all addresses.
  virtual std::uint64_t moves() const { return 0; }
  // For tensors on a device: the stream that writes them, as of the last views(). A send waits, on the device, for the
  // work queued on this stream before it, and work queued later waits until the send has read the tensors. A send is
  // refused while this stream is being captured into a graph or, if it is the default stream, while any blocking stream
  // is.
  virtual Stream stream() const;
  // For slots=1: moves each tensor's elements to its target, contiguous, in the order of views(); the tensors then stay
  // there. Tied tensors share one target. `keeps` keeps the targets' memory alive; the user of the tensors must hold
  // it, because the tensors outlive the sender and this source. An implementation stores `keeps` before it moves the
  // first tensor, keeps it even if a later move fails, and releases the old memory only after the last move. Returns
  // UNIMPLEMENTED if the tensors cannot be moved.
  virtual absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps);
};

// The factors of a product for BorrowedTensor: contiguous or with strides, in elements.
struct BorrowedLowRank {
  struct Factor {
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape{};    // b: [rows, rank]; a: [rank, columns]
    std::vector<std::int64_t> strides{};  // empty: contiguous in C order
    const void* data = nullptr;
  };
  Factor b, a;
  float scale = 1;
};

// A tensor that stays in its owner's hands, described by a spec, strides and an address.
struct BorrowedTensor {
  TensorSpec spec;
  std::vector<std::int64_t> strides{};  // elements; empty: contiguous in C order
  const void* data = nullptr;
  int device = kHost;
  float scale = 1;                         // see TensorView
  std::optional<BorrowedLowRank> delta{};  // on the same device
};

// For a program that itself tracks where its tensors lie, such as a binding to another language, so that no send has to
// compare names or shapes. The program keeps a pointer to this source, valid as long as the sender, and reports each
// change through it, between two calls of the sender.
class BorrowedTensors final : public TensorSource {
 public:
  explicit BorrowedTensors(std::vector<BorrowedTensor> tensors, Stream stream = nullptr);
  BorrowedTensors(BorrowedTensors&&) = default;  // a copy's views would lie in the original
  BorrowedTensors& operator=(BorrowedTensors&&) = default;
  // Reports that tensor `i` now lies at `data`, with the same or the given strides; its shape and type stay.
  void move(std::size_t i, const void* data) {
    views_[i].data = static_cast<const std::byte*>(data);
    ++moves_;
  }
  void move(std::size_t i, const void* data, std::vector<std::int64_t> strides);
  // Reports that the factors of tensor i's product now lie at `b` and `a`; their shapes, types and strides stay.
  void move_factors(std::size_t i, const void* b, const void* a);
  void set_stream(Stream stream) { stream_ = stream; }  // see stream()

  absl::StatusOr<std::span<const TensorView>> views() override;
  std::uint64_t edition() const override { return edition_; }
  std::uint64_t moves() const override { return moves_; }
  Stream stream() const override { return stream_; }

 private:
  std::vector<BorrowedTensor> tensors_;
  std::vector<LowRankView> deltas_;  // of the tensors that have one, in their order
  std::vector<TensorView> views_;
  Stream stream_;
  std::uint64_t edition_ = 1, moves_ = 1;
};

// For a program without LibTorch: tensors in host memory, each given as a spec and an address.
class HostTensors final : public TensorSource {
 public:
  explicit HostTensors(std::vector<std::pair<TensorSpec, const void*>> tensors);
  HostTensors(HostTensors&&) = default;  // a copy's views would lie in the original
  HostTensors& operator=(HostTensors&&) = default;
  absl::StatusOr<std::span<const TensorView>> views() override;
  std::uint64_t edition() const override { return 1; }
  std::uint64_t moves() const override { return 1; }

 private:
  std::vector<TensorSpec> specs_;
  std::vector<TensorView> views_;
};

// For a program without LibTorch: owns the memory into which slots=1 moved the parameters. Plain pointers keep nothing
// alive, so the program must hold this object as long as it uses the parameters, even after the sender is gone. Use one
// object for each set of pointers; a later sender that moves the same pointers replaces `memory`. It stays empty if
// nothing is moved.
struct ParameterMemory {
  std::shared_ptr<void> memory{};
};

// For a program without LibTorch: contiguous tensors that slots=1 may move. Each is given as a spec and the address of
// the program's own pointer to it; a move sets that pointer to the tensor's new place. The pointers must outlive the
// source.
class Parameters : public TensorSource {
 public:
  Parameters(Parameters&&) = default;  // a copy's views would lie in the original
  Parameters& operator=(Parameters&&) = default;
  absl::StatusOr<std::span<const TensorView>> views() final;
  std::uint64_t edition() const final { return 1; }  // only addresses change
  std::uint64_t moves() const final { return moves_; }
  // Returns FAILED_PRECONDITION if no `memory` was given.
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) final;

 protected:
  Parameters(int device, std::vector<std::pair<TensorSpec, void**>> tensors, std::shared_ptr<ParameterMemory> memory);

  struct Move {
    std::byte* to = nullptr;
    const void* from = nullptr;
    std::uint64_t bytes = 0;
  };
  virtual absl::Status move(std::span<const Move> moves) = 0;  // returns when all moves are done

 private:
  std::vector<TensorSpec> specs_;
  std::vector<void**> pointers_;
  std::vector<const void*> addresses_;  // as of the last views(): side by side, because every send compares them
  std::vector<TensorView> views_;
  std::uint64_t moves_ = 1;
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
