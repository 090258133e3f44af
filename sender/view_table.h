// ViewTable: a record of tensor views, to be compared with the views of every send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Names, shapes and strides are stored contiguously, since ten thousand of them are read before each pack. What a send
// computes is stored with them.
class ViewTable {
 public:
  ViewTable() = default;
  explicit ViewTable(std::span<const TensorView> views);
  // Whether the recorded view `i` equals `view`, except for the addresses of its data and its factors.
  bool same(std::size_t i, const TensorView& view) const;

 private:
  struct Entry {
    std::size_t name_end = 0, shape_end = 0, strides_end = 0,
                end = 0;  // where the next entry's name, shape and strides begin
    DType dtype = DType::kF32;
    float scale = 1;
    bool has_delta = false;  // delta_numbers() follow the strides
  };
  std::vector<Entry> entries_{Entry{}};  // the first one begins at 0
  std::vector<char> names_;
  std::vector<std::int64_t> numbers_;  // shapes, each followed by its strides and the numbers of its product
};

}  // namespace bascule::inline v0
