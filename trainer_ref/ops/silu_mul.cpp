#include <bascule/trainer_ref/ops/silu_mul.h>

#include <cmath>

namespace bascule::ref::ops::plain {

void silu_mul(Reals out, Reals gate_up, Reals update, std::int64_t tokens, std::int64_t inner) {
  const auto width = static_cast<std::size_t>(inner);
  for (std::size_t n = 0; n < static_cast<std::size_t>(tokens); ++n)
    for (std::size_t i = 0; i < width; ++i) {
      const float gate = gate_up.with(update, n * 2 * width + i), up = gate_up.with(update, (n * 2 + 1) * width + i);
      out.set(n * width + i, out.rounded(gate / (1 + std::exp(-gate))) * up);
    }
}

}  // namespace bascule::ref::ops::plain
