#include <bascule/kernels/processor.h>

namespace bascule::inline v0::kernels {

const Processor& plain_processor() {
  static constexpr Processor kPlain = {
      .run_cast = plain_run_cast,
      .page_sums = plain_page_sums,
      .tile_writer = [](DType, DType) -> TileWriter { return nullptr; },
      .scaled_writer = [](DType, DType) -> ScaledWriter { return nullptr; },
      .make_panel = plain_make_panel,
      .multiply_add = plain_multiply_add,
      .flush = [] {},
  };
  return kPlain;
}

const Processor& best_processor() {
  static const Processor& best = []() -> const Processor& {
    if (avx512_processor() != nullptr) return *avx512_processor();
    return avx2_processor() != nullptr ? *avx2_processor() : plain_processor();
  }();
  return best;
}

}  // namespace bascule::inline v0::kernels
