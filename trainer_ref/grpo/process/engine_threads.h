// How a trainer and the engines on its host share the cores. More threads than cores make all of them slower.
#pragma once

#include <algorithm>

namespace bascule::ref {

// Of the trainer: what it was told, or its share of the cores.
inline int trainer_threads(int told, int cores, int local_engines) {
  return told > 0 ? told : std::max(1, cores / (1 + local_engines));
}

// Of each engine that a trainer starts: as many as the trainer's, as far as the cores last.
inline int engine_threads(int trainer, int cores, int engines) {
  return std::clamp((cores - trainer) / std::max(1, engines), 1, std::max(1, trainer));
}

}  // namespace bascule::ref
