#include <bascule/schemes/nccl/options.h>

#include "absl/strings/numbers.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

absl::StatusOr<int> parse_ctas(std::string_view value) {
  constexpr int kMost = 64;  // NCCL's limit
  int ctas = 0;
  if (!absl::SimpleAtoi(status_internal::piece(value), &ctas) || ctas < 1 || ctas > kMost)
    return invalid_argument("expected 1 to ", kMost, " blocks of the GPU, found \"", value, "\"");
  return ctas;
}

}  // namespace bascule::inline v0::nccl
