#include <bascule/trainer_ref/engine/http/sampling_fields.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBiases = 1024;  // of logit_bias: each step copies them to the device

void read_factor(Fields& fields, const char* field, float& value, double low, double high) {
  double given = value;
  fields.number(field, given, low, high);
  value = static_cast<float>(given);
}

std::optional<std::int32_t> token_named(const std::string& text, const ModelCard& card) {
  std::int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_token = error == std::errc{} && end == text.data() + text.size() && id >= 0 && id < card.vocab_size;
  return is_token ? std::optional(id) : std::nullopt;
}

// As in vLLM, a bias counts as -100 below, and as 100 above. A bias of 0 is none.
void read_logit_bias(Fields& fields, const ModelCard& card, LogitAdjustments& adjustments) {
  const json* given = fields.find("logit_bias");
  if (given == nullptr) return;
  std::map<std::int32_t, float> biases;
  const std::string expected = cat("an object of up to ", kMostBiases, " numbers, with token ids from \"0\" to \"",
                                   card.vocab_size - 1, "\" as keys");
  if (!given->is_object() || given->size() > kMostBiases) return fields.refuse("logit_bias", *given, expected);
  for (const auto& [key, bias] : given->items()) {
    const std::optional<std::int32_t> token = token_named(key, card);
    if (!token || !bias.is_number()) return fields.refuse("logit_bias", json::object({{key, bias}}), expected);
    if (bias != 0) biases[*token] = static_cast<float>(std::clamp(bias.get<double>(), -100.0, 100.0));
  }
  if (biases.empty()) return;
  TokenBiases list;
  for (const auto& [token, bias] : biases) list.push_back({token, bias});
  adjustments.bias = adjustments.early_bias = std::make_shared<const TokenBiases>(std::move(list));
}

void read_logprobs_mode(Fields& fields, const ModelCard& card, SamplingParams& sampling) {
  sampling.logprobs = card.logprobs;
  const json* mode = fields.find("logprobs_mode");
  if (mode == nullptr) return;
  if (*mode == "raw" || *mode == "raw_logprobs") {
    sampling.logprobs = LogprobsMode::kRaw;
  } else if (*mode == "processed" || *mode == "processed_logprobs") {
    sampling.logprobs = LogprobsMode::kProcessed;
  } else {
    fields.refuse("logprobs_mode", *mode, "\"raw\" (of the logits) or \"processed\" (at the temperature)");
  }
}

}  // namespace

void read_distribution(Fields& fields, SamplingParams& sampling) {
  fields.number("temperature", sampling.temperature, 0, 100);
  fields.integer("top_k", sampling.top_k, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max());
  sampling.top_k = std::max<std::int64_t>(sampling.top_k, 0);  // -1, as in vLLM: all tokens
  fields.number("top_p", sampling.top_p, 0, 1);
  fields.number("min_p", sampling.min_p, 0, 1);
  // vLLM takes all above 0; within these bounds, no logit becomes infinite.
  read_factor(fields, "repetition_penalty", sampling.adjustments.repetition_penalty, 0.01, 100);
}

void read_sampling(Fields& fields, const ModelCard& card, SamplingParams& sampling) {
  read_distribution(fields, sampling);
  read_logprobs_mode(fields, card, sampling);
  LogitAdjustments& adjustments = sampling.adjustments;
  read_factor(fields, "presence_penalty", adjustments.presence_penalty, -2, 2);
  read_factor(fields, "frequency_penalty", adjustments.frequency_penalty, -2, 2);
  fields.integer("min_tokens", adjustments.min_tokens, std::int64_t{0}, card.max_model_len);
  read_logit_bias(fields, card, adjustments);
  if (const json* seed = fields.find("seed");
      seed != nullptr && seed->is_number_integer() && !seed->is_number_unsigned())
    sampling.seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());  // OpenAI's seeds are signed
  else
    fields.integer("seed", sampling.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
}

absl::Status forbid_early_ends(const ModelCard& card, CompletionRequest& request) {
  LogitAdjustments& adjustments = request.sampling.adjustments;
  if (adjustments.min_tokens == 0) return absl::OkStatus();
  for (const auto& prompt : request.prompts) {
    const std::int64_t most =
        std::min(request.max_tokens, request.max_length - static_cast<std::int64_t>(prompt.size()));
    if (adjustments.min_tokens > most)
      return invalid_argument("min_tokens: expected at most max_tokens, or what fits after the prompt, ", most,
                              ", found ", adjustments.min_tokens);
  }
  std::vector<std::int64_t> ends = request.stop_token_ids;
  ends.insert(ends.end(), card.eos_token_ids.begin(), card.eos_token_ids.end());
  if (ends.empty()) return absl::OkStatus();
  TokenBiases early = forbid(adjustments.bias ? *adjustments.bias : TokenBiases(), std::move(ends));
  const auto forbidden =
      std::count_if(early.begin(), early.end(), [](const TokenBias& each) { return std::isinf(each.bias); });
  if (forbidden >= card.vocab_size)
    return invalid_argument("min_tokens: stop_token_ids has all tokens of the model, and leaves none for a completion");
  adjustments.early_bias = std::make_shared<const TokenBiases>(std::move(early));
  return absl::OkStatus();
}

}  // namespace bascule::ref
