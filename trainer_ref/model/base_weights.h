// A decoder's weights in a base: one copy in memory, which a trainer of an adapter and its engines map read-only
// (base/base.h).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/decoder_weights.h>

namespace bascule::ref {

struct BaseWeightsOptions {
  std::string endpoint, name;      // of the base, and of this process there
  std::filesystem::path folder;    // of the checkpoint, which is read if no process has the base
  DType dtype = DType::kBF16;      // F32 or BF16
  c10::Device device = c10::kCPU;  // where the base lies
  std::function<void(std::string_view)> log{};
  std::optional<std::uint64_t> seed{};  // if `folder` has no weights: draws them, instead of waiting for a base
  std::function<bool()> interrupted{};  // as BaseOptions::interrupted
};

// The tensors lie in the base, and keep it open. A write to one of them ends the process.
struct BaseWeights {
  WeightMap weights;
  WeightMap joined;  // joined_weights(); empty if the parts of one do not lie side by side
  bool made_here = false;
};

// Joins the base, or makes it from the checkpoint. Blocks. A base of another configuration, checkpoint, seed or type is
// refused: its key has the checkpoint's digest, for which every process reads the whole checkpoint, or the seed. A
// folder without weights, and without a seed, joins a base of its configuration and type, whatever the weights.
absl::StatusOr<BaseWeights> open_base_weights(const ModelConfig& config, const BaseWeightsOptions& options);

}  // namespace bascule::ref
