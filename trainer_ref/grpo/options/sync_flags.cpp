// --sync of the trainer, and what it requires of the other flags.
#include <algorithm>
#include <string>
#include <string_view>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_DECLARE_FLAG(int64_t, sync_every);

namespace bascule::ref {
namespace {

std::string with_bf16(const std::string& sync) {
  constexpr std::string_view kOption = "wire_dtype=";
  const std::size_t options = sync.find('?'), at = sync.find(kOption, options);
  if (at == std::string::npos) return cat(sync, options == std::string::npos ? "?" : "&", kOption, "bf16");
  return cat(sync.substr(0, at), kOption, "bf16", sync.substr(std::min(sync.find('&', at), sync.size())));
}

}  // namespace

bool is_single_copy(const std::string& sync) {
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(sync);
  return endpoint.ok() && endpoint->slots == 1;
}

absl::Status check_sync_of(const std::string& sync, ComputesOn where, const SpawnFlags& spawn) {
  const std::string flag = cat("--sync=", sync);
  BASCULE_TRY(annotate(check_sync(sync, where, SyncEnd::kSender), flag));
  FlagChecks checks;
  if (!is_single_copy(sync)) {
    BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(sync));
    const DType sent = endpoint.wire_dtype.value_or(DType::kF32);
    checks.that(spawn.dtype != "bf16" || sent == DType::kBF16, "engine-dtype", spawn.dtype,
                "expected a --sync that casts the trainer's weights to BF16, found one that sends ", name_of(sent),
                "; give --sync=", with_bf16(sync));
    return checks.status();
  }
  BASCULE_TRY(annotate(check_single_copy(sync, where, DType::kF32), flag));
  checks
      .that(spawn.dtype == "f32", "engine-dtype", spawn.dtype,
            "with slots=1 engines read the trainer's own weights, which are f32; give f32, or slots=2 in --sync")
      .that(absl::GetFlag(FLAGS_sync_every) == 1, "sync-every", absl::GetFlag(FLAGS_sync_every),
            "with slots=1 engines read the trainer's own weights, which each step changes; give 1, or slots=2 in "
            "--sync");
  return checks.status();
}

}  // namespace bascule::ref
