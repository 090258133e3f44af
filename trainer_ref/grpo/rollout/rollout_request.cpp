#include <bascule/trainer_ref/grpo/rollout/rollout_request.h>

#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Reads the list under `key`.
template <typename T>
absl::Status read_list(const nlohmann::json& choice, const char* key, std::vector<T>& list) {
  const auto found = choice.find(key);
  if (found == choice.end() || !found->is_array())
    return invalid_argument("a choice without a list \"", key, "\"; expected the answer of a bascule-engine");
  for (const nlohmann::json& element : *found) {
    if (!element.is_number()) return invalid_argument("\"", key, "\" holds ", element.dump(), ", not a number");
    list.push_back(element.get<T>());
  }
  return absl::OkStatus();
}

absl::StatusOr<Rollout> read_rollout(const nlohmann::json& choice) {
  if (!choice.is_object()) return invalid_argument("a choice is not an object");
  Rollout rollout;
  BASCULE_TRY(read_list(choice, "token_ids", rollout.token_ids));
  const auto logprobs = choice.find("logprobs");
  if (logprobs == choice.end() || !logprobs->is_object()) return invalid_argument("a choice without \"logprobs\"");
  BASCULE_TRY(read_list(*logprobs, "token_logprobs", rollout.log_probs));
  // Of a model with an adapter, the adapter is what the trainer sends.
  const auto adapter = choice.find("adapter");
  const nlohmann::json& made_by = adapter != choice.end() && adapter->is_object() ? *adapter : choice;
  BASCULE_TRY(read_list(made_by, "epochs", rollout.epochs));
  BASCULE_TRY(read_list(made_by, "versions", rollout.versions));
  const std::size_t tokens = rollout.token_ids.size();
  if (rollout.log_probs.size() != tokens || rollout.epochs.size() != tokens || rollout.versions.size() != tokens)
    return invalid_argument("a choice of ", tokens, " tokens has ", rollout.log_probs.size(), " log-probabilities, ",
                            rollout.epochs.size(), " epochs and ", rollout.versions.size(), " versions");
  if (const auto reason = choice.find("finish_reason"); reason != choice.end() && reason->is_string())
    rollout.finish_reason = reason->get<std::string>();
  return rollout;
}

}  // namespace

std::string to_json(const RolloutRequest& request, std::string_view model) {
  // Also what is off is named: a server takes defaults of a checkpoint's generation_config.json for the rest, and the
  // trainer would then learn from another distribution than it computes.
  nlohmann::json json{{"prompt", request.prompt},
                      {"n", request.completions},
                      {"max_tokens", request.max_tokens},
                      {"temperature", request.temperature},
                      {"top_k", request.top_k},
                      {"top_p", request.top_p},
                      {"min_p", request.min_p},
                      {"repetition_penalty", 1},
                      {"presence_penalty", 0},
                      {"frequency_penalty", 0},
                      {"seed", request.seed},
                      // At the temperature, as the trainer recomputes them.
                      {"logprobs", 0},
                      {"logprobs_mode", "processed"},
                      {"return_token_ids", true}};
  if (!model.empty()) json["model"] = model;
  return json.dump();
}

absl::StatusOr<std::vector<Rollout>> read_rollouts(std::string_view body) {
  BASCULE_ASSIGN(const nlohmann::json json, parse_json(body, "the answer"));
  const auto choices = json.is_object() ? json.find("choices") : json.end();
  if (!json.is_object() || choices == json.end() || !choices->is_array())
    return invalid_argument("expected an object with a list \"choices\", found: ", body.substr(0, 80));
  std::vector<Rollout> rollouts;
  for (const nlohmann::json& choice : *choices) {
    BASCULE_ASSIGN(Rollout rollout, read_rollout(choice));
    rollouts.push_back(std::move(rollout));
  }
  return rollouts;
}

}  // namespace bascule::ref
