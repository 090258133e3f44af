// sweep: sends with various sizes, numbers of tensors and of workers, changing one of the three at a time.
#include <algorithm>
#include <array>

#include <bascule/bench/send_case.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

absl::Status point(Context& context, std::uint64_t bytes, std::uint64_t tensors, int workers) {
  const Options& options = context.options;
  constexpr std::uint64_t kLarge = std::uint64_t{256} << 20;
  const int repeat = bytes >= kLarge ? std::max(3, options.repeat / 5) : options.repeat;
  return measure_sends(context, "sweep",
                       {.rig = {.model = {.bytes = bytes, .tensors = tensors}, .workers = workers}, .repeat = repeat});
}

}  // namespace

absl::Status run_sweep(Context& context) {
  const Options& options = context.options;
  constexpr std::uint64_t kMiB = 1 << 20;
  for (const std::uint64_t bytes : {std::uint64_t{1'000'000}, 16 * kMiB, 256 * kMiB, 1024 * kMiB, 4096 * kMiB})
    BASCULE_TRY(point(context, bytes, options.tensors, options.workers));
  constexpr std::uint64_t kMiddle = 256 * kMiB;
  for (const std::uint64_t tensors : {1u, 10u, 1'000u, 10'000u})
    BASCULE_TRY(point(context, kMiddle, tensors, options.workers));
  for (const int workers : {1, 4, 8}) BASCULE_TRY(point(context, kMiddle, options.tensors, workers));
  return absl::OkStatus();
}

}  // namespace bascule::bench
