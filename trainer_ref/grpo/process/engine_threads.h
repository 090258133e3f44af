// How a trainer and the engines on its host share the cores. More threads than cores slow all of them down.
#pragma once

#include <algorithm>

namespace bascule::ref {

// Returns the trainer's number of threads: `wanted` if it is above 0, else the trainer's share of the cores.
inline int trainer_threads(int wanted, int cores, int local_engines) {
  return wanted > 0 ? wanted : std::max(1, cores / (1 + local_engines));
}

// Returns the number of threads of each engine that a trainer starts: the trainer's, if there are enough cores.
inline int engine_threads(int trainer, int cores, int engines) {
  return std::clamp((cores - trainer) / std::max(1, engines), 1, std::max(1, trainer));
}

}  // namespace bascule::ref
