// The names of the programs' objects in a config file.
#pragma once

namespace bascule::ref {

inline constexpr const char* kTrainSection = "train";
inline constexpr const char* kEngineSection = "engine";

}  // namespace bascule::ref
