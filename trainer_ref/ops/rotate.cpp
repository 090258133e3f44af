#include <bascule/trainer_ref/ops/rotate.h>

#include <cmath>
#include <vector>

namespace bascule::ref::ops::plain {
namespace {

// One head of one token, normalised if there is a weight, rounded like the kernel's intermediate values.
std::vector<float> head_of(Reals from, Reals update, std::size_t begin, std::size_t width, Reals norm, float epsilon) {
  std::vector<float> x(width);
  double squares = 0;
  for (std::size_t i = 0; i < width; ++i) {
    x[i] = from.with(update, begin + i);
    squares += static_cast<double>(x[i]) * x[i];
  }
  if (norm.data == nullptr) return x;
  const auto scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
  for (std::size_t i = 0; i < width; ++i) x[i] = from.rounded(norm[i] * from.rounded(x[i] * scale));
  return x;
}

}  // namespace

void make_turns(float* turns, const std::int64_t* positions, const float* frequencies, std::int64_t tokens, int width,
                DType dtype) {
  const Reals type{nullptr, dtype};
  const int half = width / 2;
  for (std::int64_t n = 0; n < tokens; ++n)
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[n]) * frequencies[i];
      turns[2 * (n * half + i)] = type.rounded(std::cos(angle));
      turns[2 * (n * half + i) + 1] = type.rounded(std::sin(angle));
    }
}

void rotate(void* query, const PagedCache& cache, const RotateInput& input) {
  const auto as = [&](const void* data) { return Reals{const_cast<void*>(data), cache.dtype}; };
  const auto width = static_cast<std::size_t>(cache.width), half = width / 2;
  const int all = input.heads + 2 * cache.heads;
  for (std::int64_t n = 0; n < input.tokens; ++n)
    for (int head = 0; head < all; ++head) {
      const bool is_query = head < input.heads, is_value = head >= input.heads + cache.heads;
      const void* norm = is_query ? input.query_norm : is_value ? nullptr : input.key_norm;
      const std::vector<float> x =
          head_of(as(input.query_key_value), as(input.update), static_cast<std::size_t>(n * all + head) * width, width,
                  as(norm), input.epsilon);
      const int kept_by = (head - input.heads) % cache.heads;
      const Reals to = as(is_query ? query : is_value ? cache.values : cache.keys);
      const std::size_t begin = is_query ? static_cast<std::size_t>(n * input.heads + head) * width
                                         : offset_in(cache, input.places[n], kept_by);
      for (std::size_t i = 0; i < half; ++i) {
        const float* const turn = input.turns + 2 * (static_cast<std::size_t>(n) * half + i);
        const float cosine = is_value ? 1 : turn[0], sine = is_value ? 0 : turn[1];
        to.set(begin + i, x[i] * cosine - x[i + half] * sine);
        to.set(begin + i + half, x[i + half] * cosine + x[i] * sine);
      }
    }
}

}  // namespace bascule::ref::ops::plain
