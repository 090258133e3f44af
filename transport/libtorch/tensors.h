// Converts between LibTorch's tensors and tensor views. Only the headers of this folder use LibTorch, so that the
// library itself does not link it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0::libtorch {

inline absl::StatusOr<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::kF64;
    case at::kFloat: return DType::kF32;
    case at::kHalf: return DType::kF16;
    case at::kBFloat16: return DType::kBF16;
    case at::kLong: return DType::kI64;
    case at::kInt: return DType::kI32;
    case at::kShort: return DType::kI16;
    case at::kChar: return DType::kI8;
    case at::kUInt64: return DType::kU64;
    case at::kUInt32: return DType::kU32;
    case at::kUInt16: return DType::kU16;
    case at::kByte: return DType::kU8;
    case at::kBool: return DType::kBool;
    case at::kFloat8_e4m3fn: return DType::kF8E4M3;
    case at::kFloat8_e5m2: return DType::kF8E5M2;
    case at::kFloat8_e4m3fnuz: return DType::kF8E4M3Fnuz;
    case at::kFloat8_e5m2fnuz: return DType::kF8E5M2Fnuz;
    case at::kFloat8_e8m0fnu: return DType::kF8E8M0;
    case at::kFloat4_e2m1fn_x2: return DType::kF4X2;
    case at::kComplexFloat: return DType::kC64;
    default: return invalid_argument("LibTorch's type ", c10::toString(type), " cannot be sent");
  }
}

inline at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return at::kDouble;
    case DType::kF32: return at::kFloat;
    case DType::kF16: return at::kHalf;
    case DType::kBF16: return at::kBFloat16;
    case DType::kI64: return at::kLong;
    case DType::kI32: return at::kInt;
    case DType::kI16: return at::kShort;
    case DType::kI8: return at::kChar;
    case DType::kU64: return at::kUInt64;
    case DType::kU32: return at::kUInt32;
    case DType::kU16: return at::kUInt16;
    case DType::kU8: return at::kByte;
    case DType::kBool: return at::kBool;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    case DType::kF8E5M2: return at::kFloat8_e5m2;
    case DType::kF8E4M3Fnuz: return at::kFloat8_e4m3fnuz;
    case DType::kF8E5M2Fnuz: return at::kFloat8_e5m2fnuz;
    case DType::kF8E8M0: return at::kFloat8_e8m0fnu;
    case DType::kF4X2: return at::kFloat4_e2m1fn_x2;
    case DType::kC64: return at::kComplexFloat;
  }
  return at::kByte;
}

// Returns a tensor over the view's memory, without a copy; it is valid as long as the view. If `keeps` is given, the
// tensor and its views hold it. A slot's weights are read-only memory: writing to a tensor over them ends the process.
inline at::Tensor tensor_over(const TensorView& view, std::shared_ptr<const void> keeps = nullptr) {
  const at::IntArrayRef shape(view.shape.data(), view.shape.size());
  const at::Device device =
      view.device == kHost ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(view.device));
  const auto options = at::TensorOptions().dtype(scalar_type_of(view.dtype)).device(device);
  void* data = const_cast<std::byte*>(view.data);  // for_blob takes no const; see above
  at::TensorMaker maker = at::for_blob(data, shape);
  if (!view.strides.empty()) maker.strides(at::IntArrayRef(view.strides.data(), view.strides.size()));
  if (keeps) maker.deleter([keeps = std::move(keeps)](void*) {});
  return maker.options(options)
      .target_device(device)
      .make_tensor();  // a peer GPU's memory is read on `device` all the same
}

// The listed tensors. They share their storage with the caller's, so each send sees what an optimizer wrote in place.
class TensorList final : public TensorSource {
 public:
  explicit TensorList(std::vector<std::pair<std::string, at::Tensor>> tensors)
      : tensors_(std::move(tensors)), views_(tensors_.size()) {}

  absl::StatusOr<std::span<const TensorView>> views() override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto& [name, tensor] = tensors_[i];
      if (!tensor.defined()) return invalid_argument("tensor ", name, " is undefined");
      if (!(tensor.is_cpu() || tensor.is_cuda()) || tensor.layout() != at::kStrided)
        return invalid_argument("tensor ", name, " lies on ", tensor.device().str(),
                                " or is not strided; expected a strided tensor in host memory or on a GPU");
      if (tensor.is_neg() || tensor.is_conj())
        return invalid_argument("tensor ", name,
                                " is negated or conjugated only when it is read; give its resolve_neg() "
                                "or resolve_conj()");
      if (tensor.is_cuda()) device_ = tensor.device();
      const absl::StatusOr<DType> dtype = dtype_of(tensor.scalar_type());
      if (!dtype.ok()) return annotate(dtype.status(), cat("tensor ", name));
      views_[i] = {.name = name,
                   .dtype = *dtype,
                   .shape = {tensor.sizes().data(), tensor.sizes().size()},
                   .strides = {tensor.strides().data(), tensor.strides().size()},
                   .data = static_cast<const std::byte*>(tensor.const_data_ptr()),
                   .device = tensor.is_cuda() ? tensor.device().index() : kHost};
    }
    record_stream();
    return std::span<const TensorView>(views_);
  }

  // The calling thread's current LibTorch stream for the tensors' device.
  Stream stream() const override {
    if (!device_) return nullptr;
    return static_cast<Stream>(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(*device_).native_handle());
  }

  // The tensors stay the same objects for everyone who holds them, but their storage is now in the slot. The slot lives
  // as long as any of these tensors, or any view made of them afterwards. Views made earlier keep the old storage.
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) override {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      at::Tensor& tensor = tensors_[i].second;
      try {
        if (tensor.data_ptr() == targets[i] || tensor.numel() == 0) continue;
        at::Tensor moved = at::from_blob(
            targets[i], tensor.sizes(), [keeps](void*) {}, tensor.options().requires_grad(false));
        moved.copy_(tensor.detach());
        tensor.set_data(moved);
      } catch (const c10::Error& error) {
        return failed_precondition("tensor ", tensors_[i].first,
                                   " cannot be moved into the slot: ", error.what_without_backtrace());
      }
    }
    return absl::OkStatus();
  }

 private:
  // Does what at::Tensor::record_stream() does, for stream(), which the send follows. Without this, a tensor that is
  // freed during the send could lose its memory too early: the allocator gives it to the next tensor of the stream that
  // it was allocated for, and that stream does not wait for the send. With it, the allocator waits until the send has
  // read the memory. Memory from elsewhere, such as a slot, is left out.
  void record_stream() const {
    if (!device_) return;
    const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
    const c10::Stream stream = cuda.getStream(*device_);
    for (const auto& [name, tensor] : tensors_)
      if (tensor.is_cuda() && tensor.device() == *device_ && tensor.storage().allocator() != nullptr)
        cuda.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }

  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::vector<TensorView> views_;
  std::optional<at::Device> device_;  // the GPU, if the tensors lie on one
};

inline std::unique_ptr<TensorSource> tensors(std::vector<std::pair<std::string, at::Tensor>> named) {
  return std::make_unique<TensorList>(std::move(named));
}

}  // namespace bascule::inline v0::libtorch
