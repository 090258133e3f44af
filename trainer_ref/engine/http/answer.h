// An answer of /v1/completions or /v1/chat/completions in OpenAI's form: whole, or as Server-Sent Events while it
// grows.
//
// For one thread. `card` must outlive the answer.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/choice_text.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

class Answer {
 public:
  Answer(RequestId id, AnswerOptions options, std::size_t choices, const ModelCard& card);

  std::string whole(const Completion& completion);

  // For streams: events of new tokens as they come, and the last events, once the whole completion is known. Either may
  // be empty.
  std::string events(std::span<const NewToken> tokens);
  std::string last_events(const Completion& completion);

 private:
  // Tokens of one choice that are new to the answer.
  struct Piece {
    std::vector<Sample> samples;
    std::vector<Epoch> epochs;
    std::vector<Version> versions;
    std::vector<Epoch> adapter_epochs;  // empty without an adapter
    std::vector<Version> adapter_versions;
    FinishReason finish = FinishReason::kNone;
    const PromptScores* scores = nullptr;
  };
  struct Choice {
    ChoiceText text;
    bool begun = false, ended = false;
  };
  std::vector<const Sequence*> returned(const Completion& completion) const;
  nlohmann::json told(std::uint64_t index, const Piece& piece);  // the choice's object
  std::string event_of(std::uint64_t index, const Piece& piece);
  nlohmann::json around(nlohmann::json choices, std::string_view object) const;
  nlohmann::json stop_token(const Piece& piece) const;
  bool ends_by_token(const Piece& piece) const;

  const RequestId id_;
  const AnswerOptions options_;
  const ModelCard& card_;
  const std::time_t created_ = std::time(nullptr);
  std::vector<Choice> choices_;
};

// Counts a finished completion's tokens: of its prompts, each once, and of its choices.
nlohmann::json usage_json(const Completion& completion, std::int64_t n);

std::string event(std::string_view data);            // one Server-Sent Event
inline constexpr std::string_view kDone = "[DONE]";  // the last event's data

}  // namespace bascule::ref
