// Passes tensors from Python to the transport by address, and from the transport to Python by DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::python {

namespace nb = nanobind;

// Descriptions of Python's tensors. The addresses are borrowed: the caller keeps the objects alive.
class Tensors {
 public:
  // Parallel lists with one entry per tensor. dtypes have safetensors' names, strides are in elements.
  Tensors(std::vector<std::string> names, const std::vector<std::string>& dtypes,
          std::vector<std::vector<std::int64_t>> shapes, std::vector<std::vector<std::int64_t>> strides,
          const std::vector<std::uintptr_t>& addresses, const std::vector<int>& devices, std::uintptr_t stream);

  // What a send computes: tensor `i` times `scale`, or plus scale * b a. A factor is its dtype, shape, strides and
  // address.
  using Factor = std::tuple<std::string, std::vector<std::int64_t>, std::vector<std::int64_t>, std::uintptr_t>;
  void scale(std::size_t i, float scale);
  void add_product(std::size_t i, const Factor& b, const Factor& a, float scale);

  std::unique_ptr<BorrowedTensors> source() const;
  std::vector<TensorSpec> specs() const;

 private:
  std::vector<BorrowedTensor> tensors_;
  Stream stream_;
};

DType dtype_of(const std::string& name);  // for "BF16" etc.; else throws INVALID_ARGUMENT

// An object with __dlpack__, read-only or writable, that keeps `owner` alive.
nb::object array_over(const TensorView& view, nb::handle owner);
nb::object array_over(const MutableTensorView& view, nb::handle owner);

void bind_tensors(nb::module_& module);

}  // namespace bascule::python
