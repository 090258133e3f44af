// The scheduler: which sequences run, and which of their tokens the next step computes. One thread; no tensors.
//
// Sequences join and leave the running batch at every step. Prompts are computed in pieces of at most `max_step_tokens`
// per step, alongside one token for each generating sequence. A sequence joins only if enough blocks remain for the
// next kBlockTokens tokens of every running sequence; otherwise it would soon have to leave again.
//
// If the cache is full nevertheless, the youngest running sequence frees its blocks and waits. Its full blocks, of the
// prompt and of generated tokens, can be found under their prefix until their memory is needed; the ones at the
// sequence's end are reused first. When the sequence is admitted again, it computes only the blocks that others took
// meanwhile. Blocks that were computed with other weights cannot be found. The scheduler picks the youngest because
// older sequences are nearer to their end. Also, if the weights changed, an older sequence may have begun with the
// previous weights. The choice hardly changes how much must be computed again: that depends on how many blocks the
// others need.
//
//   waiting ──admitted──▶ running ──last token──▶ finished (handed back by complete, cancel or abort_all)
//      ▲                     │
//      └──────pre-empted─────┘
//
// If a step of several sequences fails, each of them runs alone until it has sampled, so that the sequence that cannot
// be computed is identified, and no other request fails because of it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include <bascule/trainer_ref/engine/schedule/block_pool.h>
#include <bascule/trainer_ref/engine/schedule/step.h>

namespace bascule::ref {

struct SchedulerLimits {
  std::size_t max_batch = 256;         // sequences that run at once
  std::size_t max_step_tokens = 1024;  // tokens computed in one step; at least max_batch
};

class Scheduler {
 public:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  // The pool must have room for the longest sequence that is added, and max_batch for one sequence with its siblings.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool) : limits_(limits), pool_(pool) {}

  void add(std::unique_ptr<Sequence> sequence);  // with its siblings

  // Returns the next step. It is empty only if nothing runs, and nothing waits that `admits` allows.
  enum class Admits { kAll, kBegun };
  Step schedule(Admits admits = Admits::kAll);
  // Plans the step after `step` while `step` still runs: the next token of all its sequences, except the ones that
  // `step` ends because of their length. Returns nullopt if something else comes first: prompts, siblings, an
  // admission, or making room in the cache. Complete the planned step like any other, after `step`.
  std::optional<Step> plan_behind(const Step& step);
  // Whether any sequence runs, or waits as a suspect or with generated tokens, which its client may already know.
  bool has_begun() const;

  // Call it after the runner computed `step`; outputs[i] belongs to its rows[i], and is moved from. Returns the
  // sequences that ended. If a step was planned after this one, pass it: its rows for these become void.
  // `served` are the model's weights that computed the step.
  Sequences complete(const Step& step, std::span<RowOutput> outputs, MadeBy served, Step* behind = nullptr);

  // Call it instead of complete() if `step` failed and the cache is lost. All running sequences wait again, to be
  // computed anew; the sequences of `step` are suspects. Do not call it while another step runs.
  void put_back(const Step& step);

  // Whether all keys and values of a running sequence are of the weights that are served now.
  bool is_of_these_weights(const Sequence& sequence) const;

  // Removes a request's sequences, running or waiting. Call it only when every step was completed or put back.
  Sequences remove(RequestId request);

  // Call it when an adapter begins to serve a version: its sequences continue with it, and share no blocks with what
  // was computed before.
  void serve(AdapterId adapter, Epoch epoch, Version version);
  void forget(AdapterId adapter) { adapters_.erase(adapter); }  // once it has no sequences

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::uint64_t preemptions() const { return preemptions_; }
  std::uint64_t reused_tokens() const { return reused_tokens_; }  // found in the cache, not computed

 private:
  bool reserve(Sequence& sequence, std::size_t tokens);
  void preempt_youngest();
  bool admit(Admits admits, std::size_t& budget, Step& step);
  bool has_room_for(const Sequence& sequence) const;
  void begin(Sequence& sequence);
  void reuse_prefix(Sequence& sequence);
  void publish_blocks(Sequence& sequence);
  void free(Sequence& sequence);
  PrefixId root_of(const Sequence& sequence) const;
  MadeBy made_by(const Sequence& sequence, MadeBy served) const;
  void fork(Sequence& lead, Sequences siblings, std::span<Sample> samples, MadeBy made_by, Sequences& ended);
  Step schedule_a_suspect();
  void preempt_all_but(const Sequence& sequence);
  std::size_t occupied() const;  // running sequences and the siblings that will join them

  const SchedulerLimits limits_;
  BlockPool& pool_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Sequences running_;  // the oldest first
  std::vector<std::pair<BlockId, BlockId>> copies_;
  struct Adapter {
    PrefixId root = kNoPrefix;
    Epoch epoch = 0;
    Version version = 0;
  };
  absl::flat_hash_map<AdapterId, Adapter> adapters_;
  std::size_t suspects_ = 0;
  std::uint64_t preemptions_ = 0;
  std::uint64_t reused_tokens_ = 0;
};

}  // namespace bascule::ref
