#include <bascule/trainer_ref/engine/cache_size.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <limits>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/engine/compute/cache_attention.h>
#include <bascule/trainer_ref/engine/schedule/block_pool.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_FLAG(bascule::ByteSize, cache_bytes, bascule::ByteSize{0},
          "Memory of the key/value cache; 0: 256MiB, or 4GiB on a GPU. POST /sleep releases it, until /wake_up.");
ABSL_FLAG(double, gpu_memory_utilization, 0,
          "Instead of --cache-bytes: the share of the GPU's memory that this engine may use in all, as 0.9. The cache "
          "gets what its own weights and its steps leave of it. 0: --cache-bytes counts.");
ABSL_FLAG(
    int, max_model_len, 0,
    "The most tokens of one sequence, prompt and completion, 2 or more; 0: what the model allows and the cache can "
    "hold.");

namespace bascule::ref {
namespace {

constexpr std::int64_t kSteps = std::int64_t{1} << 30;  // of a GPU: context, libraries, activations, graphs

// Bytes, and the flag that says so.
struct Asked {
  std::int64_t bytes = 0;
  std::string_view flag = "cache-bytes";
  std::string value = {};
};

// The cache that `share` of a GPU's memory leaves: the rest of it after the weights, and after what steps and LibTorch
// need. Bytes; negative if nothing is left.
std::int64_t cache_within(double share, std::int64_t total_bytes, std::int64_t weight_bytes) {
  return static_cast<std::int64_t>(share * static_cast<double>(total_bytes)) - weight_bytes - kSteps;
}

absl::StatusOr<Asked> asked_bytes(c10::Device device, std::int64_t weight_bytes) {
  const ByteSize given = absl::GetFlag(FLAGS_cache_bytes);
  const double share = absl::GetFlag(FLAGS_gpu_memory_utilization);
  if (share == 0) {
    const std::int64_t otherwise = device.is_cpu() ? std::int64_t{256} << 20 : std::int64_t{4} << 30;
    const std::int64_t bytes = given.bytes > 0 ? given.bytes : otherwise;
    return Asked{.bytes = bytes, .value = AbslUnparseFlag(ByteSize{bytes})};
  }
  if (device.is_cpu())
    return invalid_argument("--gpu-memory-utilization=", share, ": the engine computes on a CPU; give --cache-bytes, ",
                            "or --device=cuda");
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  const std::int64_t bytes = cache_within(share, static_cast<std::int64_t>(total), weight_bytes);
  if (bytes + weight_bytes + kSteps > static_cast<std::int64_t>(free))
    return invalid_argument("--gpu-memory-utilization=", share, ": ", device.str(), " has ", free, " of ", total,
                            " bytes free, and that share is ",
                            static_cast<std::int64_t>(share * static_cast<double>(total)),
                            "; end other programs there, or give less");
  return Asked{.bytes = bytes, .flag = "gpu-memory-utilization", .value = cat(share)};
}

}  // namespace

absl::Status check_cache_flags() {
  const double share = absl::GetFlag(FLAGS_gpu_memory_utilization);
  const int longest = absl::GetFlag(FLAGS_max_model_len);
  FlagChecks checks;
  checks
      .that(
          longest == 0 || longest >= 2, "max-model-len", longest,
          "a prompt and a completion are two tokens or more; give 2 or more, as --max-model-len=256, or 0 for what the "
          "model allows and the cache can hold")
      .between("gpu-memory-utilization", share, 0.0, 1.0, 0.9)
      .that(share == 0 || absl::GetFlag(FLAGS_cache_bytes).bytes == 0, "gpu-memory-utilization", share,
            "--cache-bytes is also given; leave one out");
  return checks.status();
}

absl::StatusOr<CacheSize> cache_size(const ModelConfig& config, DType dtype, c10::Device device,
                                     std::int64_t weight_bytes) {
  const std::int64_t bytes = block_bytes(config, libtorch::scalar_type_of(dtype)), tokens = kBlockTokens;
  BASCULE_ASSIGN(const Asked cache, asked_bytes(device, weight_bytes));
  CacheSize size;
  size.blocks = std::clamp<std::int64_t>(cache.bytes / bytes, 0, std::numeric_limits<BlockId>::max());
  const std::int64_t asked = absl::GetFlag(FLAGS_max_model_len);
  size.max_model_len = asked > 0 ? asked : std::min(config.max_position_embeddings, size.blocks * tokens);
  FlagChecks checks;
  checks
      .that(asked <= config.max_position_embeddings, "max-model-len", asked,
            cat("the model's positions end at ", config.max_position_embeddings,
                "; give at most that, as --max-model-len=", config.max_position_embeddings))
      .that(size.blocks > 0 && size.max_model_len <= size.blocks * tokens, cache.flag, cache.value,
            cat("one sequence of ", std::max(size.max_model_len, tokens), " tokens needs ",
                (std::max(size.max_model_len, tokens) + tokens - 1) / tokens * bytes, " bytes or more of cache, and ",
                std::max<std::int64_t>(cache.bytes, 0),
                " are left; give more, as --cache-bytes=256MiB, or a smaller --max-model-len"));
  if (!checks.status().ok()) return checks.status();
  return size;
}

}  // namespace bascule::ref
