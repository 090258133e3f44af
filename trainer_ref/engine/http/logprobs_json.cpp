#include <bascule/trainer_ref/engine/http/logprobs_json.h>

#include <algorithm>
#include <string>
#include <utility>

#include <bascule/trainer_ref/engine/http/choice_text.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

// JSON has no infinity: an impossible token gets the value that OpenAI's API gives to very unlikely ones.
double finite(double logprob) { return std::max(logprob, -9999.0); }

json bytes_of(std::string_view text) {
  json bytes = json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

json chat_token(std::int64_t token, double logprob, const AnswerOptions& options, const ModelCard& card) {
  std::string text = token_text(token, card, options.tokens_as_ids);
  // If a token cuts a character, a client gets only its bytes.
  const bool is_cut = text.find("\xEF\xBF\xBD") != std::string::npos;  // U+FFFD
  json bytes = bytes_of(is_cut ? card.tokenizer->bytes_of(token) : text);
  return {{"token", std::move(text)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::vector<TokenLogprob> with_itself(const Sample& sample, std::int64_t count) {
  std::vector<TokenLogprob> all(sample.top.begin(),
                                sample.top.begin() + std::min(count, static_cast<std::int64_t>(sample.top.size())));
  const bool there =
      std::any_of(all.begin(), all.end(), [&](const TokenLogprob& top) { return top.token == sample.token; });
  if (!there) all.push_back({sample.token, sample.logprob, sample.rank});
  return all;
}

LogprobLists::LogprobLists(const AnswerOptions& options, const ModelCard& card)
    : options_(options),
      card_(card),
      tokens_(json::array()),
      logprobs_(json::array()),
      top_(json::array()),
      offsets_(json::array()) {}

void LogprobLists::add_token(std::int64_t token, std::size_t offset) {
  tokens_.push_back(token_text(token, card_, options_.tokens_as_ids));
  offsets_.push_back(offset);
}

void LogprobLists::add(const Sample& sample, std::size_t offset) {
  add_token(sample.token, offset);
  logprobs_.push_back(finite(sample.logprob));
  json top = json::object();
  for (const TokenLogprob& each : with_itself(sample, *options_.logprobs)) {
    // Of tokens with the same text, the likeliest counts.
    top.emplace(token_text(each.token, card_, options_.tokens_as_ids), finite(each.logprob));
  }
  top_.push_back(std::move(top));
}

void LogprobLists::add_unknown(std::int64_t token, std::size_t offset) {
  add_token(token, offset);
  logprobs_.push_back(nullptr);
  top_.push_back(nullptr);
}

json LogprobLists::take() {
  return {{"tokens", std::move(tokens_)},
          {"token_logprobs", std::move(logprobs_)},
          {"top_logprobs", std::move(top_)},
          {"text_offset", std::move(offsets_)}};
}

json chat_logprob(const Sample& sample, const AnswerOptions& options, const ModelCard& card) {
  json told = chat_token(sample.token, sample.logprob, options, card);
  json top = json::array();
  for (std::size_t i = 0; i < sample.top.size() && static_cast<std::int64_t>(i) < options.logprobs; ++i)
    top.push_back(chat_token(sample.top[i].token, sample.top[i].logprob, options, card));
  told["top_logprobs"] = std::move(top);
  return told;
}

json prompt_logprobs(std::span<const std::int64_t> prompt, const PromptScores& scores, const AnswerOptions& options,
                     const ModelCard& card) {
  json all = json::array({nullptr});
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    if (i > scores.of.size()) {  // the completion ended before
      all.push_back(nullptr);
      continue;
    }
    json tokens = json::object();
    for (const TokenLogprob& each : with_itself(scores.of[i - 1], scores.count))
      tokens[std::to_string(each.token)] = {{"logprob", finite(each.logprob)},
                                            {"rank", each.rank},
                                            {"decoded_token", token_text(each.token, card, options.tokens_as_ids)}};
    all.push_back(std::move(tokens));
  }
  return all;
}

}  // namespace bascule::ref
