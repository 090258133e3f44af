#include <bascule/trainer_ref/grpo/rollout/atropos_batch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kNotLearned = -100;
constexpr double kMostOfAScore = 1e6;  // as of other rewards: beyond it, one group would decide or spoil an update

// One sequence as the server has it.
struct Sequence {
  std::vector<std::int64_t> tokens, mask;
  std::vector<float> log_probs;

  std::size_t not_learned_before() const {  // how many tokens precede the first that is learned
    return static_cast<std::size_t>(
        std::ranges::find_if(mask, [](std::int64_t label) { return label != kNotLearned; }) - mask.begin());
  }
};

// The value under `key`; null if it is missing.
const Json& value_of(const Json& object, const char* key) {
  static const Json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? none : *found;
}

absl::StatusOr<const Json*> list_of(const Json& group, const char* key, std::size_t count) {
  const Json& list = value_of(group, key);
  if (!list.is_array() || (count > 0 && list.size() != count))
    return invalid_argument("\"", key, "\": expected a list of ", count > 0 ? cat(count, " values") : "sequences",
                            ", one for each sequence, found ", list.dump().substr(0, 80));
  return &list;
}

template <typename T>
absl::StatusOr<std::vector<T>> numbers_of(const Json& list, const char* key, std::size_t count) {
  std::vector<T> numbers;
  const auto fits = [](const Json& each) {
    return std::is_same_v<T, float> ? each.is_number() : each.is_number_integer();
  };
  if (!list.is_array() || (count > 0 && list.size() != count) || !std::ranges::all_of(list, fits))
    return invalid_argument("\"", key, "\": expected ",
                            count > 0 ? cat(count, " numbers, one for each token") : "token ids", ", found ",
                            list.dump().substr(0, 80));
  for (const Json& each : list) numbers.push_back(each.get<T>());
  return numbers;
}

absl::Status check_sequence(const Sequence& sequence, const AtroposLimits& limits) {
  for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
    const std::int64_t token = sequence.tokens[i], label = sequence.mask[i];
    if (token < 0 || token >= limits.vocab_size)
      return invalid_argument("\"tokens\": expected ids below ", limits.vocab_size,
                              ", the size of the vocabulary, found ", token,
                              "; the environment must use the trainer's tokenizer");
    if (label == kNotLearned) continue;
    if (label != token)
      return invalid_argument("\"masks\": expected -100 or the token itself, which is ", token, ", found ", label);
    // Atropos writes 1 if there is none.
    if (!std::isfinite(sequence.log_probs[i]) || sequence.log_probs[i] > 1e-3F)
      return invalid_argument(
          "\"inference_logprobs\": expected the log-probability of each token that is learned, found ",
          sequence.log_probs[i], " for one");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Sequence>> read_sequences(const Json& group, const AtroposLimits& limits) {
  BASCULE_ASSIGN(const Json* const tokens, list_of(group, "tokens", 0));
  if (tokens->empty()) return invalid_argument("\"tokens\": expected sequences, found none");
  BASCULE_ASSIGN(const Json* const masks, list_of(group, "masks", tokens->size()));
  if (value_of(group, "inference_logprobs").is_null())
    return invalid_argument(
        "expected \"inference_logprobs\", found none; sample with this trainer's engines, by "
        "the environment's managed server and --openai.server_type vllm");
  BASCULE_ASSIGN(const Json* const log_probs, list_of(group, "inference_logprobs", tokens->size()));
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    Sequence& sequence = sequences.emplace_back();
    BASCULE_ASSIGN(sequence.tokens, numbers_of<std::int64_t>((*tokens)[i], "tokens", 0));
    const std::size_t count = sequence.tokens.size();
    if (count == 0) return invalid_argument("\"tokens\": a sequence is empty");
    BASCULE_ASSIGN(sequence.mask, numbers_of<std::int64_t>((*masks)[i], "masks", count));
    BASCULE_ASSIGN(sequence.log_probs, numbers_of<float>((*log_probs)[i], "inference_logprobs", count));
    BASCULE_TRY(check_sequence(sequence, limits));
  }
  return sequences;
}

// What all begin with and none learns. At least one token: nothing predicts the first.
std::size_t prompt_tokens(const std::vector<Sequence>& sequences) {
  const std::vector<std::int64_t>& first = sequences.front().tokens;
  std::size_t common = first.size();
  for (const Sequence& sequence : sequences) {
    const auto same = std::ranges::mismatch(first, sequence.tokens).in1 - first.begin();
    common = std::min({common, static_cast<std::size_t>(same), sequence.not_learned_before()});
  }
  return common;
}

// The override of one sequence, which the group's does not replace.
const Json& override_of(const Json& group, std::size_t sequence) {
  const Json& all = value_of(group, "overrides");
  static const Json none;
  return all.is_array() && sequence < all.size() ? all[sequence] : none;
}

absl::Status check_temperature(const Json& group, std::size_t sequence, double temperature) {
  for (const Json* const from :
       {&override_of(group, sequence), &value_of(group, "generation_params"), &value_of(group, "group_overrides")}) {
    const Json& found = value_of(*from, "temperature");
    if (!found.is_number()) continue;
    if (std::abs(found.get<double>() - temperature) < 1e-6) return absl::OkStatus();
    return invalid_argument("a sequence was sampled at the temperature ", found.dump(),
                            ", and the loss computes with --temperature=", temperature, "; use one of them for both");
  }
  return absl::OkStatus();
}

// What replaces the comparison with the group, if anything does.
absl::StatusOr<std::optional<double>> set_advantage(const Json& group, std::size_t index, const Sequence& sequence) {
  if (value_of(override_of(group, index), "set_advantage_to_zero") == true) return 0;
  const Json& all = value_of(group, "advantages");
  if (all.is_null()) return std::nullopt;
  if (!all.is_array() || index >= all.size())
    return invalid_argument("\"advantages\": expected a list for each sequence, found ", all.dump().substr(0, 80));
  BASCULE_ASSIGN(const std::vector<float> of_tokens,
                 numbers_of<float>(all[index], "advantages", sequence.tokens.size()));
  const float value = of_tokens[sequence.not_learned_before()];
  if (!(std::abs(value) <= kMostOfAScore))
    return invalid_argument("\"advantages\": expected numbers from -1e6 to 1e6, found ", value);
  for (std::size_t i = 0; i < of_tokens.size(); ++i)
    if (sequence.mask[i] != kNotLearned && of_tokens[i] != value)
      return invalid_argument("\"advantages\": expected the same for all learned tokens of a sequence, found ", value,
                              " and ", of_tokens[i], "; leave them out, and scores are compared within the group");
  return value;
}

absl::StatusOr<std::optional<double>> score_of(const Json& score) {
  if (score.is_null()) return std::nullopt;
  if (!score.is_number() || std::abs(score.get<double>()) > kMostOfAScore)
    return invalid_argument("\"scores\": expected a number from -1e6 to 1e6, found ", score.dump().substr(0, 80));
  return score.get<double>();
}

void drop(AtroposBatch& batch, std::size_t sequences, std::string why) {
  batch.dropped += sequences;
  constexpr std::size_t kMostReasons = 8;  // thousands of environments may each have one
  if (batch.why.size() < kMostReasons && std::ranges::find(batch.why, why) == batch.why.end())
    batch.why.push_back(std::move(why));
}

Rollout rollout_of(const Sequence& sequence, std::size_t prompt) {
  const auto from = static_cast<std::ptrdiff_t>(prompt);
  Rollout rollout{.token_ids = {sequence.tokens.begin() + from, sequence.tokens.end()},
                  .log_probs = {sequence.log_probs.begin() + from, sequence.log_probs.end()}};
  for (std::size_t i = prompt; i < sequence.mask.size(); ++i)
    rollout.learned.push_back(sequence.mask[i] != kNotLearned);
  return rollout;
}

absl::Status add_group(const Json& json, const AtroposLimits& limits, AtroposBatch& batch) {
  BASCULE_ASSIGN(const std::vector<Sequence> sequences, read_sequences(json, limits));
  BASCULE_ASSIGN(const Json* const scores, list_of(json, "scores", sequences.size()));
  CompletionGroup group;
  const std::size_t prompt = prompt_tokens(sequences);
  if (prompt == 0)
    return invalid_argument("nothing comes before the first token that is learned; mask the prompt by -100");
  group.prompt.assign(sequences.front().tokens.begin(),
                      sequences.front().tokens.begin() + static_cast<std::ptrdiff_t>(prompt));
  std::size_t too_long = 0, empty = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = sequences[i];
    const bool learns = sequence.not_learned_before() < sequence.tokens.size();
    const bool fits = std::ssize(sequence.tokens) <= limits.max_tokens;
    empty += learns ? 0 : 1;
    too_long += learns && !fits ? 1 : 0;
    if (!learns || !fits) continue;
    BASCULE_TRY(check_temperature(json, i, limits.temperature));
    Rollout& rollout = group.rollouts.emplace_back(rollout_of(sequence, prompt));
    BASCULE_ASSIGN(rollout.reward, score_of((*scores)[i]));
    BASCULE_ASSIGN(rollout.set_advantage, set_advantage(json, i, sequence));
  }
  if (too_long > 0)
    drop(batch, too_long, cat("sequences are longer than --max-tokens=", limits.max_tokens, " with their prompt"));
  if (empty > 0) drop(batch, empty, "sequences have no token that is learned");
  if (!group.rollouts.empty()) batch.groups.push_back(std::move(group));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<AtroposBatch>> read_atropos_batch(std::string_view body, const AtroposLimits& limits) {
  BASCULE_ASSIGN(const Json answer, parse_json(body, "the answer"));
  if (value_of(answer, "status") == "error") {
    const Json& message = value_of(answer, "message");
    return unavailable("it says: ", message.is_string() ? message.get<std::string>() : message.dump());
  }
  const Json& list = value_of(answer, "batch");
  if (answer.is_object() && answer.contains("batch") && (list.is_null() || list == Json::array())) return std::nullopt;
  if (!list.is_array())
    return invalid_argument("expected a list \"batch\" of the API server of Atropos, found ", body.substr(0, 80));
  AtroposBatch batch;
  for (const Json& group : list) {
    const Json& tokens = value_of(group, "tokens");
    const std::size_t sequences = tokens.is_array() && !tokens.empty() ? tokens.size() : 1;  // one is missing
    batch.sequences += sequences;
    const absl::Status added = add_group(group, limits, batch);
    if (!added.ok())
      drop(batch, sequences,
           cat("environment ", value_of(group, "env_id").dump().substr(0, 80), ": ", message_of(added)));
  }
  return batch;
}

}  // namespace bascule::ref
