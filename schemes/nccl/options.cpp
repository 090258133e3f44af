#include <bascule/schemes/nccl/options.h>

#include <bascule/transport/numbers.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

absl::StatusOr<int> parse_ctas(std::string_view value) {
  constexpr int kMost = 64;  // NCCL's limit
  const std::optional<int> ctas = plain_number(value, 1, kMost);
  if (!ctas) return invalid_argument("expected 1 to ", kMost, " blocks of the GPU, found \"", value, "\"");
  return *ctas;
}

}  // namespace bascule::inline v0::nccl
