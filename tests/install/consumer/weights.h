// The model that the sender sends and the receiver checks: each element shows its tensor, place and version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace consumer {

inline constexpr int kVersions = 3;
inline constexpr std::int64_t kVocabulary = 4099, kWidth = 96;  // embedding [V, C], norm [C]

// Below 2^24, so that a float holds every element exactly; small enough to differ in every byte but the sign.
inline float element(int version, std::size_t tensor, std::size_t index) {
  return static_cast<float>((index * 7 + tensor * 3 + static_cast<std::size_t>(version) * 1'000'003) % (1u << 24));
}

inline void fill(std::vector<float>& elements, int version, std::size_t tensor) {
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = element(version, tensor, i);
}

}  // namespace consumer
