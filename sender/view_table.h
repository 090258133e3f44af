// ViewTable: tensor views as they were once, to be compared with those of every send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Names, shapes and strides lie side by side: ten thousand of them are read through before each pack.
class ViewTable {
 public:
  ViewTable() = default;
  explicit ViewTable(std::span<const TensorView> views);
  // Whether view `i` was the same but for its data.
  bool same(std::size_t i, const TensorView& view) const;

 private:
  struct Entry {
    std::size_t name_end = 0, shape_end = 0, strides_end = 0;  // where the next entry's begin
    DType dtype = DType::kF32;
  };
  std::vector<Entry> entries_{Entry{}};  // the first one begins at nothing
  std::vector<char> names_;
  std::vector<std::int64_t> numbers_;  // shapes, each with its strides behind it
};

}  // namespace bascule::inline v0
