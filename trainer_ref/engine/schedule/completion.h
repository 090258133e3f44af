// A completion as a client requests it and as it comes back; and an engine's statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/trainer_ref/engine/schedule/sequence.h>

namespace bascule::ref {

// Checked already: every id is in the vocabulary, every length and number within bounds.
struct CompletionRequest {
  std::vector<std::vector<std::int64_t>> prompts;
  std::int64_t n = 1;  // completions of each prompt
  AdapterId adapter = kNoAdapter;
  std::int64_t max_tokens = 16;
  std::int64_t max_length = std::numeric_limits<std::int64_t>::max();  // of a prompt and its completion
  SamplingParams sampling;
  std::vector<std::int64_t> stop_token_ids;  // sorted
  // Makes a TextEnd for each completion of a prompt; null: no text ends them.
  std::function<TextEnd(std::span<const std::int64_t> prompt)> text_end;
  std::optional<std::int64_t> prompt_logprobs;  // how many likeliest tokens to report at each token of the prompt
  std::shared_ptr<TokenSink> sink;              // receives tokens as they are generated; null: none

  std::size_t choices() const { return prompts.size() * static_cast<std::size_t>(n); }
};

struct Completion {
  absl::Status status;                             // an error if the step failed: there are no choices then
  std::vector<std::unique_ptr<Sequence>> choices;  // prompt by prompt
};

struct EngineStats {
  Served served;
  std::size_t running = 0, waiting = 0;  // sequences
  std::size_t blocks = 0, blocks_used = 0;
  std::uint64_t requests = 0, rejected = 0, cancelled = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, reused_tokens = 0;
  std::uint64_t steps = 0, preemptions = 0, flips = 0;
  double stall_seconds = 0;  // spent in flips, in all
  GraphCounts graphs;
  bool paused = false;  // requests are taken, and none begins
  bool asleep = false;  // or about to be: nothing new is taken
};

}  // namespace bascule::ref
