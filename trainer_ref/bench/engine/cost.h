// What a step needs at least, and how long that takes at least on a machine whose rates were measured.
#pragma once

#include <algorithm>

namespace bascule::bench {

struct Rates {
  double bytes_per_second = 0;       // of a copy, what it reads and what it writes
  double operations_per_second = 0;  // of a large matrix product; a multiplication with its addition counts as two
};

struct Cost {
  double bytes = 0;       // read once: weights and, of each row, keys and values
  double operations = 0;  // of matrix products and attention
  double seconds(const Rates& rates) const {
    return std::max(bytes / rates.bytes_per_second, operations / rates.operations_per_second);
  }
};

}  // namespace bascule::bench
