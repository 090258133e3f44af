// digest: what the digest costs in a send (off, on, always), and its own rate, compared with memcpy's rate of reading
// the same bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/kernels/digest.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

// memcpy into memory that stays in the cache, so that its time is the time of reading.
double read_by_memcpy(std::span<const std::byte> bytes, kernels::ThreadPool& pool) {
  constexpr std::size_t kPiece = 64 << 10;
  const Clock::time_point start = Clock::now();
  const auto threads = static_cast<std::size_t>(pool.threads());
  const std::size_t share = (bytes.size() + threads - 1) / threads;
  pool.run(threads, [&](std::size_t i) {
    alignas(64) static thread_local std::array<std::byte, kPiece> cached;
    const std::size_t end = std::min(bytes.size(), (i + 1) * share);
    for (std::size_t at = i * share; at < end; at += kPiece) {
      std::memcpy(cached.data(), bytes.data() + at, std::min(kPiece, end - at));
      asm volatile("" : : "r"(cached.data()) : "memory");  // so that the copy is not optimised away
    }
  });
  return seconds_between(start, Clock::now());
}

absl::Status measure_rate(Context& context) {
  const Options& options = context.options;
  Record record = record_of(context, "digest_rate");
  record.bytes = options.bytes;
  record.tensors = 1;
  record.baseline_name = "memcpy's reading";
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    BASCULE_TRY(check_on_host(context, "bascule-bench-cuda measures the digest of a GPU"));
    BASCULE_TRY(check_rig_fits(context, {.bytes = options.bytes, .tensors = 1}, 0, 0));
    BASCULE_ASSIGN(Model model, Model::make({.bytes = options.bytes, .tensors = 1}, options.seed, context.pool));
    BASCULE_TRY(model.step(1));
    const Digest expected = kernels::digest(model.bytes(), context.pool);
    return take_turns(
        context, to, options.repeat,
        [&]() -> absl::StatusOr<Turn> {
          const Clock::time_point start = Clock::now();
          const Digest digest = kernels::digest(model.bytes(), context.pool);
          const double seconds = seconds_between(start, Clock::now());
          if (digest != expected) return absl::InternalError("the same bytes gave two digests");
          return Turn{.seconds = seconds, .stages = {}};
        },
        [&]() -> absl::StatusOr<double> { return read_by_memcpy(model.bytes(), context.pool); });
  });
}

}  // namespace

absl::Status run_digest(Context& context) {
  const Options& options = context.options;
  for (const std::string_view mode : {"off", "on", "always"}) {
    BASCULE_TRY(measure_sends(context, cat("digest_", mode),
                              {.rig = {.model = {.bytes = options.bytes, .tensors = options.tensors},
                                       .endpoint_option = cat("digest=", mode),
                                       .workers = options.workers},
                               .repeat = std::max(3, options.repeat / 2)}));
  }
  return measure_rate(context);
}

}  // namespace bascule::bench
