#include "tensors.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <span>
#include <utility>

#include "errors.h"
#include <bascule/transport/status.h>

namespace bascule::python {
namespace {

nb::dlpack::dtype dlpack_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [dtype](Code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
  };
  using Type = nb::dlpack::dtype;
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16: return of(Code::Float);
    case DType::kBF16: return of(Code::Bfloat);
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8: return of(Code::Int);
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8: return of(Code::UInt);
    case DType::kBool: return of(Code::Bool);
    case DType::kF8E4M3: return of(Code::Float8_E4M3FN);
    case DType::kF8E5M2: return of(Code::Float8_E5M2);
    case DType::kF8E4M3Fnuz: return of(Code::Float8_E4M3FNUZ);
    case DType::kF8E5M2Fnuz: return of(Code::Float8_E5M2FNUZ);
    case DType::kF8E8M0: return of(Code::Float8_E8M0FNU);
    case DType::kF4X2: return Type{static_cast<std::uint8_t>(Code::Float4_E2M1FN), 4, 2};
    case DType::kC64: return of(Code::Complex);
  }
  return of(Code::UInt);
}

template <typename Array, typename Data>
nb::object make_array(Data* data, std::span<const std::int64_t> shape, DType dtype, int device, nb::handle owner) {
  const std::vector<std::size_t> sizes(shape.begin(), shape.end());
  const int device_type = device == kHost ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(Array(data, sizes.size(), sizes.data(), owner, nullptr, dlpack_type(dtype), device_type,
                        device == kHost ? 0 : device));
}

// Returns dtype, shape, strides, address and device of an object with __dlpack__ (other than torch's and numpy's).
nb::tuple describe(nb::handle tensor) {
  using Array = nb::ndarray<nb::ro>;
  Array array, again;  // both alive at once: an object that copies each time gives two addresses
  if (!nb::try_cast(tensor, array) || !nb::try_cast(tensor, again))
    throw Failure{invalid_argument("its __dlpack__() fails, or gives a tensor that cannot be read")};
  if (array.data() != again.data())
    throw Failure{
        invalid_argument("its __dlpack__() makes a copy, which would be gone at the send; give the original tensor")};
  const nb::dlpack::dtype type = array.dtype();
  std::string name;
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (const nb::dlpack::dtype known = dlpack_type(static_cast<DType>(i)); known == type) name = kDTypes[i].name;
  if (name.empty())
    throw Failure{invalid_argument("DLPack's type ", int{type.code}, " of ", int{type.bits}, " bits cannot be sent")};
  std::vector<std::int64_t> shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(static_cast<std::int64_t>(array.shape(i)));
    strides.push_back(array.stride(i));
  }
  const bool on_host = array.device_type() == nb::device::cpu::value;
  if (!on_host && array.device_type() != nb::device::cuda::value)
    throw Failure{invalid_argument("it lies on a device of DLPack's type ", array.device_type(),
                                   "; expected host memory or a GPU")};
  return nb::make_tuple(name, shape, strides, reinterpret_cast<std::uintptr_t>(array.data()),
                        on_host ? kHost : array.device_id());
}

}  // namespace

DType dtype_of(const std::string& name) {
  const std::optional<DType> dtype = dtype_named(name);
  if (!dtype) throw Failure{invalid_argument("no tensors have the type ", name)};
  return *dtype;
}

Tensors::Tensors(std::vector<std::string> names, const std::vector<std::string>& dtypes,
                 std::vector<std::vector<std::int64_t>> shapes, std::vector<std::vector<std::int64_t>> strides,
                 const std::vector<std::uintptr_t>& addresses, const std::vector<int>& devices, std::uintptr_t stream)
    : stream_(reinterpret_cast<Stream>(stream)) {
  const std::size_t count = names.size();
  if (dtypes.size() != count || shapes.size() != count || strides.size() != count || addresses.size() != count ||
      devices.size() != count)
    throw Failure{invalid_argument("the lists that describe tensors have different lengths")};
  tensors_.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    tensors_.push_back({.spec = {std::move(names[i]), dtype_of(dtypes[i]), std::move(shapes[i])},
                        .strides = std::move(strides[i]),
                        .data = reinterpret_cast<const void*>(addresses[i]),
                        .device = devices[i]});
}

void Tensors::scale(std::size_t i, float scale) { tensors_.at(i).scale = scale; }

void Tensors::add_product(std::size_t i, const Factor& b, const Factor& a, float scale) {
  const auto factor = [](const Factor& given) {
    const auto& [dtype, shape, strides, address] = given;
    return BorrowedLowRank::Factor{dtype_of(dtype), shape, strides, reinterpret_cast<const void*>(address)};
  };
  tensors_.at(i).delta = BorrowedLowRank{factor(b), factor(a), scale};
}

std::unique_ptr<BorrowedTensors> Tensors::source() const {
  return std::make_unique<BorrowedTensors>(tensors_, stream_);
}

std::vector<TensorSpec> Tensors::specs() const {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors_.size());
  for (const BorrowedTensor& tensor : tensors_) specs.push_back(tensor.spec);
  return specs;
}

nb::object array_over(const TensorView& view, nb::handle owner) {
  return make_array<nb::ndarray<nb::ro, nb::array_api>>(static_cast<const void*>(view.data), view.shape, view.dtype,
                                                        view.device, owner);
}

nb::object array_over(const MutableTensorView& view, nb::handle owner) {
  return make_array<nb::ndarray<nb::array_api>>(static_cast<void*>(view.data), view.shape, view.dtype, view.device,
                                                owner);
}

void bind_tensors(nb::module_& module) {
  nb::class_<Tensors>(module, "Tensors", "Descriptions of tensors, whose memory the caller keeps alive.")
      .def(nb::init<std::vector<std::string>, const std::vector<std::string>&, std::vector<std::vector<std::int64_t>>,
                    std::vector<std::vector<std::int64_t>>, const std::vector<std::uintptr_t>&, const std::vector<int>&,
                    std::uintptr_t>(),
           nb::arg("names"), nb::arg("dtypes"), nb::arg("shapes"), nb::arg("strides"), nb::arg("addresses"),
           nb::arg("devices"), nb::arg("stream"))
      .def("scale", &Tensors::scale, nb::arg("index"), nb::arg("scale"), "Multiplies a tensor in each send.")
      .def("add_product", &Tensors::add_product, nb::arg("index"), nb::arg("b"), nb::arg("a"), nb::arg("scale"),
           "Adds scale * b a to a tensor in each send. A factor is its dtype, shape, strides and address.");
  module.def("describe", &describe, nb::arg("tensor"),
             "Returns dtype, shape, strides, address and device (-1: the host) of an object with __dlpack__.");
}

}  // namespace bascule::python
