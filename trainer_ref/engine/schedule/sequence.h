// A sequence: one prompt and the tokens generated after it. Plain data that the scheduler moves through its life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/block_pool.h>
#include <bascule/trainer_ref/engine/schedule/sampler.h>
#include <bascule/transport/version.h>

namespace bascule::ref {

using RequestId = std::uint64_t;

// An adapter that is loaded (adapters.h). Never given twice.
using AdapterId = std::uint32_t;
inline constexpr AdapterId kNoAdapter = 0;

enum class FinishReason { kNone, kStop, kLength, kAbort };

// The weights that made a token: the model's, and the adapter's if there is one.
struct MadeBy {
  Epoch epoch = 0;
  Version version = 0;
  Epoch adapter_epoch = 0;
  Version adapter_version = 0;
};

// What a client requests about its prompt's tokens: how likely each was after the ones before it, and the `count`
// likeliest tokens. Completions of one prompt share it.
struct PromptScores {
  std::int64_t count = 0;
  std::vector<Sample> of;  // of the prompt's second token, third, …; complete with the first token that is generated
};

// A token as it was generated, for streamed answers.
struct NewToken {
  std::uint64_t choice = 0;
  Sample sample;
  MadeBy made_by;
  FinishReason finish = FinishReason::kNone;
  std::shared_ptr<const PromptScores> prompt_scores = {};  // null: not requested
};

// Receives new tokens. put() is called on the engine's thread, and must return at once.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void put(NewToken token) = 0;
};

// Gets each token of one completion, in order; returns whether the text ends with it. Engine's thread, like put().
using TextEnd = std::function<bool(std::int64_t token)>;

struct Sequence {
  RequestId request = 0;
  std::uint64_t choice = 0;  // its place among the request's completions
  AdapterId adapter = kNoAdapter;
  SamplingParams sampling;
  std::int64_t max_tokens = 16;                 // 0: the prompt is computed, and nothing generated
  std::vector<std::int64_t> stop_token_ids;     // sorted, with the model's end token unless it is ignored
  TextEnd text_end;                             // null: no text ends it
  std::shared_ptr<PromptScores> prompt_scores;  // null: not requested
  std::shared_ptr<TokenSink> sink;              // null: the answer is sent once it is whole

  std::vector<std::int64_t> tokens;  // the prompt, then what was generated
  std::size_t prompt_tokens = 0;
  std::vector<Sample> samples;  // one for each generated token
  std::vector<Epoch> epochs;    // one for each: the epoch of the sender whose weights made it
  std::vector<Version> versions;
  std::vector<Epoch> adapter_epochs;  // the same of the adapter; empty without one
  std::vector<Version> adapter_versions;
  FinishReason finish = FinishReason::kNone;
  bool suspect = false;  // a step with it failed: it is computed alone until it has sampled

  // Keys and values of tokens[0, computed) lie in `blocks` of the cache, kBlockTokens to a block.
  std::size_t computed = 0;
  std::vector<BlockId> blocks;
  // The first `published` of `blocks` are findable under `prefix`, unless the weights changed since: the model's
  // (generation), or the adapter's (root).
  std::size_t published = 0;
  PrefixId prefix = kNoPrefix, root = kNoPrefix;
  std::uint64_t generation = 0;

  // Other completions of the same prompt: they wait here until it is computed, and then share its blocks.
  std::vector<std::unique_ptr<Sequence>> siblings;

  std::size_t generated() const { return tokens.size() - prompt_tokens; }
  std::span<const std::int64_t> prompt() const { return std::span(tokens).first(prompt_tokens); }
  std::span<const std::int64_t> completion() const { return std::span(tokens).subspan(prompt_tokens); }
  bool wants_scores() const { return prompt_scores && prompt_scores->of.size() + 1 < prompt_tokens; }
};

// Adds a sampled token, unless none is wanted; decides whether the sequence ends with it.
void append(Sequence& sequence, Sample sample, MadeBy made_by);

}  // namespace bascule::ref
