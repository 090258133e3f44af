#include <bascule/trainer_ref/ops/rms_norm.h>

#include <cmath>

namespace bascule::ref::ops::plain {

void rms_norm(Reals out, Reals residual, Reals added, Reals update, Reals weight, std::int64_t tokens,
              std::int64_t channels, float epsilon) {
  const auto width = static_cast<std::size_t>(channels);
  for (std::size_t n = 0; n < static_cast<std::size_t>(tokens); ++n) {
    double squares = 0;
    for (std::size_t i = n * width; i < (n + 1) * width; ++i) {
      if (added.data != nullptr) residual.set(i, residual[i] + added.with(update, i));
      squares += static_cast<double>(residual[i]) * residual[i];
    }
    const auto scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(channels) + epsilon));
    for (std::size_t c = 0; c < width; ++c)
      out.set(n * width + c, weight[c] * out.rounded(residual[n * width + c] * scale));
  }
}

}  // namespace bascule::ref::ops::plain
