#include "layouts.h"

#include <nanobind/ndarray.h>

#include <bit>
#include <cstddef>

namespace bascule::python {
namespace {

// DLPackExchangeAPI of dlpack.h 1.2, whose layout is the same in all versions 1.x.
struct ExchangeTable {
  std::uint32_t major, minor;
  ExchangeTable* older;
  void (*allocate)();
  void (*managed_from_python)();
  void (*managed_to_python)();
  int (*describe)(void* tensor, void* into);  // fills a DLTensor, whose shape and strides belong to the tensor
};

}  // namespace

Layouts::Layouts(const nb::list& tensors, const nb::object& table) {
  const auto* found = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(table.ptr(), "dlpack_exchange_api"));
  if (found == nullptr) throw nb::python_error();
  if (found->major != 1 || found->describe == nullptr) throw nb::buffer_error("expected a table of DLPack 1.x");
  describe_ = found->describe;
  read(tensors, seen_);
}

bool Layouts::same(const nb::list& tensors) {
  read(tensors, now_);
  return now_ == seen_;
}

void Layouts::read(const nb::list& tensors, std::vector<std::int64_t>& into) const {
  into.clear();
  for (std::size_t i = 0, count = nb::len(tensors); i < count; ++i) {
    nb::dlpack::dltensor tensor;
    if (describe_(nb::object(tensors[i]).ptr(), &tensor) != 0) throw nb::python_error();
    into.push_back(std::bit_cast<std::intptr_t>(tensor.data) + static_cast<std::int64_t>(tensor.byte_offset));
    into.push_back(tensor.device.device_type);
    into.push_back(tensor.device.device_id);
    into.push_back(std::bit_cast<std::int32_t>(tensor.dtype));
    into.push_back(tensor.ndim);
    into.insert(into.end(), tensor.shape, tensor.shape + tensor.ndim);
    if (tensor.strides != nullptr) into.insert(into.end(), tensor.strides, tensor.strides + tensor.ndim);
  }
}

void bind_layouts(nb::module_& module) {
  nb::class_<Layouts>(module, "Layouts", "Address, device, type, shape and strides of tensors as they were.")
      .def(nb::init<const nb::list&, const nb::object&>(), nb::arg("tensors"), nb::arg("table"))
      .def("same", &Layouts::same, nb::arg("tensors"));
}

}  // namespace bascule::python
