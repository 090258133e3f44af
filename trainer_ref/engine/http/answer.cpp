#include <bascule/trainer_ref/engine/http/answer.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/trainer_ref/engine/http/logprobs_json.h>
#include <bascule/trainer_ref/engine/http/trl_answer.h>
#include <bascule/trainer_ref/engine/http/vllm_answer.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

json finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return nullptr;
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: break;
  }
  return "abort";
}

json token_ids_of(const std::vector<Sample>& samples) {
  json ids = json::array();
  for (const Sample& sample : samples) ids.push_back(sample.token);
  return ids;
}

}  // namespace

Answer::Answer(RequestId id, AnswerOptions options, std::size_t choices, const ModelCard& card)
    : id_(id), options_(std::move(options)), card_(card) {
  choices_.reserve(choices);
  for (std::size_t i = 0; i < choices; ++i) choices_.push_back({.text = ChoiceText(options_, card)});
}

// A token that ends a completion is not part of its text.
bool Answer::ends_by_token(const Piece& piece) const {
  return piece.finish == FinishReason::kStop && !piece.samples.empty() &&
         std::binary_search(options_.stop_token_ids.begin(), options_.stop_token_ids.end(), piece.samples.back().token);
}

// As in vLLM: the id of stop_token_ids; null for the model's own end. A special token that the request names by its
// text in `stop` is that text.
json Answer::stop_token(const Piece& piece) const {
  const bool asked =
      piece.finish == FinishReason::kStop && !piece.samples.empty() &&
      std::binary_search(options_.asked_stop_ids.begin(), options_.asked_stop_ids.end(), piece.samples.back().token);
  if (!asked) return nullptr;
  const std::int64_t token = piece.samples.back().token;
  if (!options_.stop || !card_.tokenizer) return token;
  const std::string text(card_.tokenizer->token_of(token).value_or(""));
  const bool by_text = std::find(options_.stop->begin(), options_.stop->end(), text) != options_.stop->end();
  return by_text ? json(text) : json(token);
}

json Answer::told(std::uint64_t index, const Piece& piece) {
  Choice& choice = choices_[index];
  const bool first = !std::exchange(choice.begun, true);
  LogprobLists lists(options_, card_);
  json content = json::array();  // of a chat's log-probabilities
  std::string text;
  const std::vector<std::int64_t>* prompt =
      options_.prompts.empty() ? nullptr : &options_.prompts[index / static_cast<std::uint64_t>(options_.n)];
  if (first && !options_.echo && !options_.prompt_tails.empty())
    choice.text.follow(options_.prompt_tails[index / static_cast<std::uint64_t>(options_.n)]);
  if (first && options_.echo) {
    for (std::size_t i = 0; i < prompt->size(); ++i) {
      const std::size_t offset = choice.text.characters();
      text += choice.text.push_prompt((*prompt)[i]);
      if (!options_.logprobs) continue;
      if (i == 0 || piece.scores == nullptr || i > piece.scores->of.size()) {
        lists.add_unknown((*prompt)[i], offset);
      } else {
        lists.add(piece.scores->of[i - 1], offset);
      }
    }
  }
  const bool by_token = ends_by_token(piece);
  for (std::size_t i = 0; i < piece.samples.size(); ++i) {
    const Sample& sample = piece.samples[i];
    const std::size_t offset = choice.text.characters();
    const bool is_end = by_token && i + 1 == piece.samples.size();
    if (!is_end || options_.include_stop) text += choice.text.push(sample.token);
    if (!options_.logprobs) continue;
    if (options_.chat) {
      content.push_back(chat_logprob(sample, options_, card_));
    } else {
      lists.add(sample, offset);
    }
  }
  FinishReason finish = piece.finish;
  json stop_reason;
  if (finish != FinishReason::kNone) {
    // What ended the choice: a stop string that its text completes, a token, or a stop string that only the held-back
    // rest of the text completes, such as a character that stays cut. For the last, the engine had another reason.
    const bool by_string = !by_token && choice.text.stop_string();
    const bool had_string = choice.text.stop_string().has_value();
    text += choice.text.finish();
    choice.ended = true;
    const bool by_rest = !had_string && choice.text.stop_string();
    if (by_rest) finish = FinishReason::kStop;
    stop_reason = by_string || by_rest ? json(*choice.text.stop_string()) : stop_token(piece);
  }
  json told{{"index", index}, {"finish_reason", finish_name(finish)}, {"logprobs", nullptr}};
  if (options_.logprobs && options_.chat) told["logprobs"] = {{"content", std::move(content)}, {"refusal", nullptr}};
  if (options_.logprobs && !options_.chat) told["logprobs"] = lists.take();
  if (piece.finish != FinishReason::kNone) told["stop_reason"] = std::move(stop_reason);
  told["text"] = std::move(text);
  if (options_.prompt_logprobs && !options_.chat)
    told["prompt_logprobs"] = prompt_logprobs(*prompt, *piece.scores, options_, card_);
  if (!options_.return_token_ids) return told;
  if (first && !options_.chat) told["prompt_token_ids"] = *prompt;
  told["token_ids"] = token_ids_of(piece.samples);
  told["epochs"] = piece.epochs;
  told["versions"] = piece.versions;
  if (!options_.adapter.empty())
    told["adapter"] = {
        {"name", options_.adapter}, {"epochs", piece.adapter_epochs}, {"versions", piece.adapter_versions}};
  return told;
}

json Answer::around(json choices, std::string_view object) const {
  return {{"id", cat(options_.chat ? "chatcmpl-" : "cmpl-", id_)},
          {"object", object},
          {"created", created_},
          {"model", options_.adapter.empty() ? card_.id : options_.adapter},
          {"choices", std::move(choices)}};
}

// The choices of an answer: all, or of each prompt the ones with the highest sums of log-probabilities, the highest
// first.
std::vector<const Sequence*> Answer::returned(const Completion& completion) const {
  std::vector<const Sequence*> all;
  all.reserve(completion.choices.size());
  for (const auto& sequence : completion.choices) all.push_back(sequence.get());
  if (options_.best == 0) return all;
  const auto likelihood = [](const Sequence* sequence) {
    return std::accumulate(sequence->samples.begin(), sequence->samples.end(), 0.0,
                           [](double sum, const Sample& sample) { return sum + sample.logprob; });
  };
  std::vector<const Sequence*> best;
  for (auto prompt = all.begin(); prompt != all.end(); prompt += options_.n) {
    std::stable_sort(prompt, prompt + options_.n,
                     [&](const Sequence* a, const Sequence* b) { return likelihood(a) > likelihood(b); });
    best.insert(best.end(), prompt, prompt + options_.best);
  }
  return best;
}

std::string Answer::whole(const Completion& completion) {
  if (options_.form == AnswerForm::kTrl || options_.form == AnswerForm::kOlderTrl)
    return trl_answer(options_, completion);
  json choices = json::array();
  for (const Sequence* sequence : returned(completion)) {
    json choice = told(sequence->choice, {.samples = sequence->samples,
                                          .epochs = sequence->epochs,
                                          .versions = sequence->versions,
                                          .adapter_epochs = sequence->adapter_epochs,
                                          .adapter_versions = sequence->adapter_versions,
                                          .finish = sequence->finish,
                                          .scores = sequence->prompt_scores.get()});
    if (options_.best > 0) choice["index"] = choices.size();
    if (options_.chat) {
      choice["message"] = {{"role", "assistant"}, {"content", std::move(choice["text"])}, {"refusal", nullptr}};
      choice.erase("text");
    }
    choices.push_back(std::move(choice));
  }
  if (options_.form == AnswerForm::kVllm) return vllm_answer(choices, options_, completion, card_);
  json answer = around(std::move(choices), options_.chat ? "chat.completion" : "text_completion");
  answer["usage"] = usage_json(completion, options_.n);
  if (options_.chat && options_.return_token_ids) answer["prompt_token_ids"] = options_.prompts.front();
  if (options_.chat && options_.prompt_logprobs && !completion.choices.empty())
    answer["prompt_logprobs"] =
        prompt_logprobs(options_.prompts.front(), *completion.choices.front()->prompt_scores, options_, card_);
  return dumped(answer);
}

std::string Answer::event_of(std::uint64_t index, const Piece& piece) {
  const bool first = !choices_[index].begun;
  bool tells_prompt = first && options_.chat && options_.return_token_ids;
  std::string events;
  const auto add = [&](json choice) {
    json chunk = around(json::array({std::move(choice)}), options_.chat ? "chat.completion.chunk" : "text_completion");
    if (options_.include_usage) chunk["usage"] = nullptr;
    if (std::exchange(tells_prompt, false)) chunk["prompt_token_ids"] = options_.prompts.front();
    events += event(dumped(chunk));
  };
  if (first && options_.chat)
    add({{"index", index},
         {"delta", {{"role", "assistant"}, {"content", ""}}},
         {"logprobs", nullptr},
         {"finish_reason", nullptr}});
  json choice = told(index, piece);
  const bool says_text = !choice["text"].get_ref<const std::string&>().empty();
  if (!says_text && !options_.logprobs && !options_.return_token_ids && piece.finish == FinishReason::kNone)
    return events;  // held back
  if (options_.chat) {
    choice["delta"] = says_text ? json{{"content", std::move(choice["text"])}} : json::object();
    choice.erase("text");
  }
  add(std::move(choice));
  return events;
}

std::string Answer::events(std::span<const NewToken> tokens) {
  std::map<std::uint64_t, Piece> pieces;
  for (const NewToken& token : tokens) {
    Piece& piece = pieces[token.choice];
    piece.samples.push_back(token.sample);
    piece.epochs.push_back(token.made_by.epoch);
    piece.versions.push_back(token.made_by.version);
    if (!options_.adapter.empty()) {
      piece.adapter_epochs.push_back(token.made_by.adapter_epoch);
      piece.adapter_versions.push_back(token.made_by.adapter_version);
    }
    piece.finish = token.finish;
    piece.scores = token.prompt_scores.get();
  }
  std::string events;
  for (const auto& [index, piece] : pieces) events += event_of(index, piece);
  return events;
}

// A completion may have ended without a token: aborted, or with none to generate.
std::string Answer::last_events(const Completion& completion) {
  std::string events;
  for (const auto& sequence : completion.choices)
    if (!choices_[sequence->choice].ended)
      events += event_of(sequence->choice, {.samples = {},
                                            .epochs = {},
                                            .versions = {},
                                            .adapter_epochs = {},
                                            .adapter_versions = {},
                                            .finish = sequence->finish,
                                            .scores = sequence->prompt_scores.get()});
  if (options_.include_usage) {
    json chunk = around(json::array(), options_.chat ? "chat.completion.chunk" : "text_completion");
    chunk["usage"] = usage_json(completion, options_.n);
    events += event(dumped(chunk));
  }
  return events + event(kDone);
}

json usage_json(const Completion& completion, std::int64_t n) {
  std::size_t prompt_tokens = 0, completion_tokens = 0;
  for (const auto& sequence : completion.choices) {
    // A prompt counts once, whatever n is.
    if (sequence->choice % static_cast<std::uint64_t>(n) == 0) prompt_tokens += sequence->prompt_tokens;
    completion_tokens += sequence->generated();
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

std::string event(std::string_view data) { return cat("data: ", data, "\n\n"); }

}  // namespace bascule::ref
