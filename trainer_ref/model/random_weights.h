// Random weights, for measurements.
#pragma once

#include <cstdint>

#include <bascule/trainer_ref/model/decoder_weights.h>

namespace bascule::ref {

// Writes `weights`, on their device, in the order of their names: matrices that preserve the size of the values that
// they multiply, and norms' weights of about 1.
void draw_weights(const WeightMap& weights, std::uint64_t seed);

}  // namespace bascule::ref
