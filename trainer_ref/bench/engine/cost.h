// The least that a step must read and compute, and the least time that this takes at rates measured on a machine.
#pragma once

#include <algorithm>

namespace bascule::bench {

struct Rates {
  double bytes_per_second = 0;       // of a copy, counting what it reads and what it writes
  double operations_per_second = 0;  // of a large matrix product; a multiplication with its addition counts as two
};

struct Cost {
  double bytes = 0;       // what is read once: weights and, for each row, keys and values
  double operations = 0;  // of matrix products and attention
  double seconds(const Rates& rates) const {
    return std::max(bytes / rates.bytes_per_second, operations / rates.operations_per_second);
  }
};

}  // namespace bascule::bench
