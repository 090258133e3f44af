// Random numbers that are the same with every compiler, unlike the distributions of <random>.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace bascule::simulator {

class Random {
 public:
  // `stream` separates purposes: drawing for one does not change another's numbers.
  Random(std::uint64_t seed, std::uint64_t stream) : bits_(seed * 0x9e3779b97f4a7c15 + stream) {}

  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }  // in [0, 1)
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  std::uint64_t below(std::uint64_t count) {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(count));
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace bascule::simulator
