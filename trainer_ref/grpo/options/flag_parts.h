// The parts of parse_train_flags(), a file per topic. Each checks its flags against one another and against the parts
// that were parsed before. INVALID_ARGUMENT names the flag.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/program/bridge_config.h>

namespace bascule::ref {

// Upper bounds of sensible runs. They also keep each number finite as a float, and each product within 64 bits.
inline constexpr int kMostCompletions = 65'536;  // per problem: the largest --max-batch of an engine
inline constexpr std::int64_t kMostProblems = 1'000'000, kMostTokens = 1 << 20, kMostIterations = 1000;
inline constexpr double kMostOfANumber = 1e6;

// --bridge-config, or with environments of Atropos and neither engines nor --sync, the file at its usual places: an
// engine, and the endpoint of its weights. nullopt if there is none to read.
absl::StatusOr<std::optional<BridgeConfig>> find_bridge(bool has_engines, const std::string& sync);

struct RunKind {
  bool supervised = false, dry_run = false;
};

absl::StatusOr<ChatOptions> parse_chat_flags();
absl::StatusOr<EngineFlags> parse_engine_flags(SpawnFlags spawn, RunKind kind);
absl::StatusOr<AtroposFlags> parse_atropos_flags(const EngineFlags& engines);
// Also checks --reward-timeout and --overlong-*.
absl::StatusOr<RolloutFlags> parse_rollout_flags(const TaskFlags& task, RunKind kind);
absl::StatusOr<RewardFlags> parse_reward_flags(std::int64_t max_tokens);
absl::StatusOr<LearnFlags> parse_learn_flags(const RolloutFlags& rollouts);
absl::StatusOr<LoraFlags> parse_lora_flags(const std::filesystem::path& resume, const EngineFlags& engines);
absl::StatusOr<ComputeFlags> parse_compute_flags(const EngineFlags& engines, RunKind kind,
                                                 const std::function<void(std::string_view)>& log);

// Returns OK if a trainer that computes at `where` can send its f32 weights over `sync`, with the other flags as they
// are.
absl::Status check_sync_of(const std::string& sync, ComputesOn where, const SpawnFlags& spawn);

}  // namespace bascule::ref
