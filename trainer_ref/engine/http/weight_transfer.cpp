#include <bascule/trainer_ref/engine/http/weight_transfer.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/trainer_ref/engine/http/fields.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

constexpr double kMostSeconds = 3600;

// How a trainer sends to this engine instead.
std::string advice(const ModelCard& card) {
  const std::string endpoint = card.sync.empty() ? "shm:///run/user/1000/grpo" : card.sync;
  return cat("this engine takes weights from Bascule alone. In the trainer, call bascule.trl.install(\"", endpoint,
             "\") before a trainer of TRL is made, give vLLM's trainer API "
             "bascule.vllm.trainer.BasculeTrainerInitInfo(endpoint=\"",
             endpoint, "\"), or use bascule.Sender(\"", endpoint, "\")",
             card.sync.empty() ? cat("; and start this engine with --sync=", endpoint) : "");
}

// Refuses the fields of vLLM's other backends, each by its name.
absl::Status check_backend(const json& info, std::string_view where, const ModelCard& card) {
  struct Mark {
    const char* field;
    const char* backend;
  };
  static constexpr std::array<Mark, 8> kMarks{{{"master_address", "backend nccl"},
                                               {"num_updates_list", "backend sparse_nccl"},
                                               {"ipc_handles", "backend ipc"},
                                               {"ipc_handles_pickled", "backend ipc"},
                                               {"trainer_actor_names", "backend sharded_rdt"},
                                               {"names", "backend nccl"},
                                               {"rank_offset", "backend nccl"},
                                               {"packed", "backend ipc"}}};
  const auto backend = info.find("backend");
  if (backend != info.end() && *backend != "bascule")
    return invalid_argument(where, ".backend: expected \"bascule\", found ", shown(*backend), ": ", advice(card));
  const auto* const found =
      std::find_if(kMarks.begin(), kMarks.end(), [&](const Mark& mark) { return info.contains(mark.field); });
  if (found == kMarks.end()) return absl::OkStatus();
  return invalid_argument(where, ".", found->field, " is a field of vLLM's ", found->backend, ": ", advice(card));
}

// The object in `field`, or the only one of a list with one for each rank.
absl::StatusOr<json> info_of(std::string_view text, const char* field) {
  BASCULE_ASSIGN(json request, parse_object(text));
  if (!request.contains(field)) return invalid_argument(field, " is missing: give an object, as {\"", field, "\": {}}");
  json info = std::move(request[field]);
  if (info.is_array() && info.size() == 1) info = json(std::move(info.front()));
  if (!info.is_object())
    return invalid_argument(field, ": expected an object, or a list with one for this engine's only rank, found ",
                            shown(info));
  return info;
}

absl::Status check_known(const Fields& fields, std::string_view where, std::string_view known) {
  BASCULE_TRY(fields.status);
  if (const std::vector<std::string> unknown = fields.unread(); !unknown.empty())
    return invalid_argument(where, ": expected ", known, ", found ", absl::StrJoin(unknown, ", "));
  return absl::OkStatus();
}

bool same_place(const std::string& one, const std::string& other) {
  const absl::StatusOr<Endpoint> a = Endpoint::parse(one), b = Endpoint::parse(other);
  return a.ok() && b.ok() && a->scheme == b->scheme && a->place() == b->place();
}

}  // namespace

absl::Status check_follows(const ModelCard& card) {
  if (!card.sync.empty()) return absl::OkStatus();
  return invalid_argument(
      "this engine follows no trainer, and its weights never change: start it with --sync=ENDPOINT");
}

absl::Status check_init(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json info, info_of(text, "init_info"));
  BASCULE_TRY(check_backend(info, "init_info", card));
  Fields fields(info);
  const json* endpoint = fields.find("endpoint");
  const json* worker = fields.find("worker");
  fields.accept(std::array<const char*, 2>{"backend", "apply"});
  BASCULE_TRY(check_known(fields, "init_info", "endpoint, worker and apply"));
  if (endpoint != nullptr && !endpoint->is_string())
    return invalid_argument("init_info.endpoint: expected a URL, found ", shown(*endpoint));
  if (card.sync.empty() && endpoint != nullptr)
    return invalid_argument("this engine follows no trainer: start it with --sync=", endpoint->get<std::string>());
  BASCULE_TRY(check_follows(card));
  if (endpoint != nullptr && !same_place(*endpoint, card.sync))
    return invalid_argument("init_info.endpoint: this engine follows ", card.sync, " (--sync), found ",
                            endpoint->get<std::string>(), "; start it with that endpoint, or let the trainer send to ",
                            card.sync);
  if (worker != nullptr && *worker != card.worker)
    return invalid_argument("init_info.worker: this engine's name is \"", card.worker, "\" (--worker), found ",
                            shown(*worker));
  return absl::OkStatus();
}

absl::StatusOr<AwaitedVersion> parse_update(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json info, info_of(text, "update_info"));
  BASCULE_TRY(check_backend(info, "update_info", card));
  BASCULE_TRY(check_follows(card));
  Fields fields(info);
  AwaitedVersion awaited;
  fields.integer("version", awaited.version, Version{1}, std::numeric_limits<Version>::max());
  double seconds = absl::ToDoubleSeconds(awaited.timeout);
  fields.number("timeout", seconds, 0, kMostSeconds);
  fields.accept(std::array<const char*, 1>{"backend"});
  BASCULE_TRY(check_known(fields, "update_info", "version and timeout"));
  awaited.timeout = absl::Seconds(seconds);
  return awaited;
}

bool has_come(const AwaitedVersion& awaited, const Served& served) {
  return served.ready && served.version >= awaited.version;
}

std::string why_missing(const AwaitedVersion& awaited, const Served& served, const ModelCard& card) {
  return cat(awaited.version == 0 ? "no version" : cat("version ", awaited.version), " of ", card.sync,
             awaited.version == 0 ? " came" : " did not come", " within ", absl::FormatDuration(awaited.timeout), ": ",
             served.ready ? cat("version ", served.version, " is served") : "none is served",
             served.attached ? "" : ", and no sender is connected",
             served.error.ok() ? "" : cat(" (", message_of(served.error), ")"));
}

absl::StatusOr<std::optional<std::string>> parse_text_field(std::string_view text, const char* field) {
  if (text.empty()) return std::nullopt;
  BASCULE_ASSIGN(const json request, parse_object(text));
  Fields fields(request);
  const json* given = fields.find(field);
  if (given == nullptr) return std::nullopt;
  if (!given->is_string()) return invalid_argument(field, ": expected a text, found ", shown(*given));
  return given->get<std::string>();
}

std::string server_info_json(const ModelCard& card, bool text) {
  const json transfer = card.sync.empty() ? json() : json{{"backend", "bascule"}, {"endpoint", card.sync}};
  json served = json::array({card.id});
  for (const std::string& id : card.other_ids) served.push_back(id);
  const json config{
      {"model_config",
       {{"model", card.paths.empty() ? card.id : card.paths.front()},
        {"served_model_name", std::move(served)},
        {"max_model_len", card.max_model_len},
        {"dtype", card.bf16 ? "torch.bfloat16" : "torch.float32"},
        {"logprobs_mode", card.logprobs == LogprobsMode::kRaw ? "raw_logprobs" : "processed_logprobs"}}},
      {"parallel_config",
       {{"world_size", 1}, {"tensor_parallel_size", 1}, {"pipeline_parallel_size", 1}, {"data_parallel_size", 1}}},
      {"scheduler_config", {{"max_num_seqs", card.max_batch}}},
      {"device_config", {{"device", card.device}}},
      {"weight_transfer_config", transfer},
      {"lora_config", nullptr}};
  return dumped({{"vllm_config", text ? json(dumped(config)) : config},
                 {"vllm_env", json::object()},
                 {"system_env", json::object()}});
}

std::string no_group(std::string_view path, const ModelCard& card) {
  return cat(path, " belongs to an NCCL group of TRL's older server: ", advice(card));
}

}  // namespace bascule::ref
