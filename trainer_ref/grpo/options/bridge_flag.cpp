// The file that names the engine and the endpoint for weights, instead of --engines and --sync.
#include <filesystem>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(std::string, bridge_config, "",
          "Instead of --engines and --sync: the file that an engine wrote by its own --bridge-config. With "
          "--rollouts=atropos:… and no engines it is looked for as Atropos' example trainer does: "
          "vllm_bridge_config.json in $LOGDIR, here, and in /tmp/atropos_bridge");
ABSL_DECLARE_FLAG(std::string, rollouts);

namespace bascule::ref {

absl::StatusOr<std::optional<BridgeConfig>> find_bridge(bool has_engines, const std::string& sync) {
  const std::string given = absl::GetFlag(FLAGS_bridge_config);
  FlagChecks checks;
  checks.that(given.empty() || (!has_engines && sync.empty()), "bridge-config", given,
              "the file names the engine and the endpoint; leave out --engines, --spawn-engines and --sync, or this");
  if (!checks.status().ok()) return checks.status();
  if (!given.empty()) {
    absl::StatusOr<BridgeConfig> bridge = read_bridge_config(given, BridgeOwner::kAnyUser);
    BASCULE_TRY(
        of_flag(bridge.status(), "bridge-config", given, "give the file that bascule-engine wrote with the same flag"));
    return *std::move(bridge);
  }
  if (has_engines || !sync.empty() || !absl::StartsWith(absl::GetFlag(FLAGS_rollouts), "atropos:")) return std::nullopt;
  std::string tried;
  for (const std::filesystem::path& file : bridge_files_to_try()) {
    absl::StatusOr<BridgeConfig> bridge = read_bridge_config(file, BridgeOwner::kThisUser);
    if (bridge.ok()) return *std::move(bridge);
    if (!absl::IsNotFound(bridge.status())) return bridge.status();
    tried += cat(tried.empty() ? "" : ", ", file.string());
  }
  return invalid_argument(
      "--engines: give the engine that the environments sample with, as --engines=http://127.0.0.1:9001 "
      "with its --sync, or --spawn-engines=1; or start bascule-engine with --bridge-config: there "
      "is no file ",
      tried);
}

}  // namespace bascule::ref
