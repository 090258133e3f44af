// Tensors between Python and the transport: in by address, out by DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::python {

namespace nb = nanobind;

// Tensors of Python objects, described once. The addresses are borrowed: the caller keeps the objects alive.
class Tensors {
 public:
  // Side by side, one entry a tensor; dtypes as safetensors names them, strides in elements.
  Tensors(std::vector<std::string> names, const std::vector<std::string>& dtypes,
          std::vector<std::vector<std::int64_t>> shapes, std::vector<std::vector<std::int64_t>> strides,
          const std::vector<std::uintptr_t>& addresses, const std::vector<int>& devices, std::uintptr_t stream);

  std::unique_ptr<BorrowedTensors> source() const;
  std::vector<TensorSpec> specs() const;

 private:
  std::vector<BorrowedTensor> tensors_;
  Stream stream_;
};

DType dtype_of(const std::string& name);  // "BF16"; else INVALID_ARGUMENT names it

// Objects with __dlpack__, read-only or not, of which each keeps `owner` alive.
nb::object array_over(const TensorView& view, nb::handle owner);
nb::object array_over(const MutableTensorView& view, nb::handle owner);

void bind_tensors(nb::module_& module);

}  // namespace bascule::python
