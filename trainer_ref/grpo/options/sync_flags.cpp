// --sync of the trainer, and what a single copy (slots=1) requires of the other flags.
#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_DECLARE_FLAG(int64_t, sync_every);

namespace bascule::ref {

bool is_single_copy(const std::string& sync) {
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(sync);
  return endpoint.ok() && endpoint->slots == 1;
}

absl::Status check_sync_of(const std::string& sync, ComputesOn where, const SpawnFlags& spawn) {
  const std::string flag = cat("--sync=", sync);
  BASCULE_TRY(annotate(check_sync(sync, where, SyncEnd::kSender), flag));
  if (!is_single_copy(sync)) return absl::OkStatus();
  BASCULE_TRY(annotate(check_single_copy(sync, where, DType::kF32), flag));
  FlagChecks checks;
  checks
      .that(spawn.dtype == "f32", "engine-dtype", spawn.dtype,
            "with slots=1 engines read the trainer's own weights, which are f32; give f32, or slots=2 in --sync")
      .that(absl::GetFlag(FLAGS_sync_every) == 1, "sync-every", absl::GetFlag(FLAGS_sync_every),
            "with slots=1 engines read the trainer's own weights, which each step changes; give 1, or slots=2 in "
            "--sync");
  return checks.status();
}

}  // namespace bascule::ref
