// Rows of tokens that follow each other in a flat batch, without padding: where each begins and ends.
//
// Shapes: R rows, N tokens in all of them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace bascule::ref {

struct PackedRows {
  std::vector<std::int64_t> starts{0};  // [R + 1]: the place of each row's first token, and N
  at::Tensor device_starts;             // int32 [R + 1]: the same, on the tokens' device
  std::int64_t longest = 0;             // tokens of the longest row

  std::int64_t rows() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  std::int64_t tokens() const { return starts.back(); }
};

// Rows of `lengths` tokens each.
PackedRows pack_rows(const std::vector<std::int64_t>& lengths, at::Device device = at::kCPU);

}  // namespace bascule::ref
