// Random numbers as a function of a seed and a position, the same on every machine (unlike the standard library's
// distributions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bascule::ref {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that scatters neighbouring inputs.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// One stream of numbers for each (seed, stream).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : state_(mix(mix(seed) ^ stream)) {}
  std::uint64_t next() { return mix(state_++); }
  // In [0, bound); the bias, bound / 2^64, does not matter here.
  std::size_t below(std::size_t bound) { return next() % bound; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  std::uint64_t state_;
};

template <typename T>
void shuffle(std::vector<T>& items, Random random) {  // Fisher and Yates
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

}  // namespace bascule::ref
