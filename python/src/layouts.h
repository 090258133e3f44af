// Sees whether torch's tensors lie as they did.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace bascule::python {

namespace nb = nanobind;

// Address, device, type, shape and strides of tensors as they were. Reads them all in one pass, through the table of C
// functions that DLPack defines for a class of tensors (torch has one since 2.10): Python would make an object for each
// property of each tensor.
class Layouts {
 public:
  // table: the class's __dlpack_c_exchange_api__. Throws what the table's function throws, such as BufferError for a
  // type that DLPack does not have, and BufferError if the table has no function for this.
  Layouts(const nb::list& tensors, const nb::object& table);

  // Throws as the constructor does.
  bool same(const nb::list& tensors);

 private:
  void read(const nb::list& tensors, std::vector<std::int64_t>& into) const;

  int (*describe_)(void* tensor, void* into) = nullptr;  // dltensor_from_py_object_no_sync
  std::vector<std::int64_t> seen_, now_;
};

void bind_layouts(nb::module_& module);

}  // namespace bascule::python
