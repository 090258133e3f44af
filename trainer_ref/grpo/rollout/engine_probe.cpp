#include <bascule/trainer_ref/grpo/rollout/engine_probe.h>

#include <optional>

#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(2);

}  // namespace

// {"error": {"message": "…"}}, or /health's {"state": "…", "error": "…"}.
std::string reason_in(const HttpResponse& response) {
  const absl::StatusOr<nlohmann::json> body = parse_json(response.body, "the answer");
  const auto text = [](const nlohmann::json& object, const char* key) -> std::optional<std::string> {
    if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return std::nullopt;
    return object[key].get<std::string>();
  };
  if (body.ok()) {
    const std::optional<std::string> state = text(*body, "state"), error = text(*body, "error");
    if (state) return cat(*state, error ? cat(", ", *error) : "");
    if (body->is_object() && body->contains("error"))
      if (const std::optional<std::string> message = text((*body)["error"], "message")) return *message;
  }
  return response.body.substr(0, 200);
}

absl::StatusOr<EngineHealth> probe_health(const std::string& url, HttpClient& client, const std::string& adapter) {
  const absl::StatusOr<HttpResponse> response = client.get(url + "/health", kTimeout);
  if (!response.ok()) return response.status();
  if (response->status != 200) return unavailable("HTTP ", response->status, ": ", reason_in(*response));
  EngineHealth health;
  const absl::StatusOr<nlohmann::json> body = parse_json(response->body, "the answer");
  if (!body.ok() || !body->is_object()) return health;
  const auto value = [](const nlohmann::json& object, const std::string& key) {
    return object.is_object() ? object.value(key, nlohmann::json()) : nlohmann::json();
  };
  const nlohmann::json synced = adapter.empty() ? *body : value(value(*body, "adapters"), adapter);
  health.attached = value(synced, "attached") == true;
  health.active = value(synced, "active") == true;
  if (value(synced, "epoch").is_number_unsigned()) health.epoch = value(synced, "epoch").get<std::uint64_t>();
  if (value(*body, "worker").is_string()) health.worker = value(*body, "worker").get<std::string>();
  return health;
}

absl::StatusOr<EngineLimits> probe_limits(const std::string& url, HttpClient& client) {
  BASCULE_ASSIGN(const HttpResponse response, client.get(url + "/v1/models", kTimeout));
  if (response.status == 401)
    return failed_precondition("it requires a key: ", reason_in(response),
                               "; also give the engines' key to this program, as BASCULE_API_KEY");
  const absl::StatusOr<nlohmann::json> body = parse_json(response.body, "the answer");
  const auto limit = [&body](const char* key) -> std::int64_t {
    const nlohmann::json::json_pointer place(cat("/data/0/", key));
    return body.ok() && body->contains(place) && body->at(place).is_number_unsigned()
               ? body->at(place).get<std::int64_t>()
               : 0;
  };
  const EngineLimits limits{.max_model_len = limit("max_model_len"),
                            .max_completions = limit("max_completions"),
                            .max_batch = limit("max_batch")};
  if (limits.max_model_len > 0 && limits.max_completions > 0 && limits.max_batch > 0) return limits;
  return failed_precondition(
      "expected max_model_len, max_completions and max_batch of a bascule-engine at /v1/models, ", "found HTTP ",
      response.status, ": ", reason_in(response));
}

std::string health_of_engines(const std::vector<std::string>& urls) {
  std::string text;
  HttpClient client;
  for (const std::string& url : urls) {
    const absl::Status health = probe_health(url, client).status();
    text +=
        cat(text.empty() ? "" : "; ", "engine ", url, " says ", health.ok() ? "that it serves" : message_of(health));
  }
  return text;
}

}  // namespace bascule::ref
