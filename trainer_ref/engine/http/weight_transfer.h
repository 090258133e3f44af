// vLLM's verbs of weight transfer, for an engine that takes its trainer's versions by itself: they say whether it
// follows the right trainer, and wait for a version. docs/guide/engine-api.md has their table. No sockets here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

// INVALID_ARGUMENT if the engine follows no trainer.
absl::Status check_follows(const ModelCard& card);

// /init_weight_transfer_engine: {"init_info": {"endpoint": URL}}. INVALID_ARGUMENT if the request means another backend
// or another trainer than the engine's.
absl::Status check_init(std::string_view json, const ModelCard& card);

// /update_weights: {"update_info": {"version": N, "timeout": SECONDS}}. INVALID_ARGUMENT for another backend's fields.
struct AwaitedVersion {
  Version version = 0;  // this one or a newer one; 0: any
  absl::Duration timeout = absl::Seconds(30);
};
absl::StatusOr<AwaitedVersion> parse_update(std::string_view json, const ModelCard& card);
bool has_come(const AwaitedVersion& awaited, const Served& served);
// Why it has not come in time.
std::string why_missing(const AwaitedVersion& awaited, const Served& served, const ModelCard& card);

// The text in `field` of a request whose body may be empty. Nullopt: it has none.
absl::StatusOr<std::optional<std::string>> parse_text_field(std::string_view json, const char* field);

// vLLM's /server_info, with what clients read of it. `text`: as one text in place of JSON.
std::string server_info_json(const ModelCard& card, bool text);

// Why a route is refused that sends weights over NCCL.
std::string no_group(std::string_view path, const ModelCard& card);

}  // namespace bascule::ref
