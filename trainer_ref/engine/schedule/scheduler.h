// The scheduler: which sequences run, and which tokens of theirs the next step computes. One thread; no
// tensors.
//
// Sequences join and leave the running batch at every step. Prompts are computed in pieces of at most
// `max_step_tokens` a step, beside the single tokens of those that generate. One joins only where all that run find
// the blocks of their next kBlockTokens tokens: else it would soon have to leave again.
//
// When the cache is full all the same, the youngest running sequence frees its blocks and waits. The full ones,
// of its prompt and of what it generated, can be found under their prefix until their memory is needed, from the
// sequence's end; so, admitted again, it computes only what others took meanwhile. Blocks of other weights cannot be
// found. The youngest is the victim since the older ones are nearer to their end, and began with older weights, if any
// did. Which one it is decides little of what is lost, which is the memory that the others need.
//
//   waiting ──admitted──▶ running ──last token──▶ finished (handed back by complete, cancel or abort_all)
//      ▲                     │
//      └──────pre-empted─────┘
//
// Where a step of several sequences failed, each of them runs alone until it has sampled: so one that cannot be
// computed is known by name, and ends nobody else's request.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

  // The pool must hold one whole sequence of any length that is added, and max_batch one sequence with its
  // siblings.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool) : limits_(limits), pool_(pool) {}

  void add(std::unique_ptr<Sequence> sequence);  // with its siblings

  // The next step; empty only where nothing runs, and nothing waits that it admits.
  enum class Admits { kAll, kBegun };
  Step schedule(Admits admits = Admits::kAll);
  // The step behind `step`, which runs and is not completed yet: the next token of all its sequences but those that end
  // with this one's for their length. None where something else is to be done first: prompts, siblings, an admission,
  // or to make room in the cache. Completed as any other, behind `step`.
  std::optional<Step> plan_behind(const Step& step);
  // Something runs, or waits to go on: it has tokens already, which its client may know.
  bool has_begun() const;

  // After the runner computed `step`: outputs[i] belongs to rows[i], and is taken. Returns those that ended; where a
  // step was planned behind, its rows lose them.
  Sequences complete(const Step& step, std::span<RowOutput> outputs, MadeBy made_by, Step* behind = nullptr);

  // Instead of complete(): `step` failed, and what the cache held is lost. All that run wait again, to be computed
  // anew; those of `step` are suspects. Not while another step runs.
  void put_back(const Step& step);

  // Takes a request's sequences out, wherever they are. Not while a step is neither completed nor put back.
  Sequences remove(RequestId request);

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::uint64_t preemptions() const { return preemptions_; }
  std::uint64_t reused_tokens() const { return reused_tokens_; }  // found in the cache, not computed

 private:
  bool reserve(Sequence& sequence, std::size_t tokens);
  void preempt_youngest();
  bool admit(Admits admits, std::size_t& budget, Step& step);
  bool has_room_for(const Sequence& sequence) const;
  void reuse_prefix(Sequence& sequence);
  void publish_blocks(Sequence& sequence);
  void free(Sequence& sequence);
  void fork(Sequence& lead, Sequences siblings, std::span<Sample> samples, MadeBy made_by, Sequences& ended);
  Step schedule_a_suspect();
  void preempt_all_but(const Sequence& sequence);
  std::size_t occupied() const;  // running sequences and the siblings that will join them

  const SchedulerLimits limits_;
  BlockPool& pool_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Sequences running_;  // the oldest first
  std::vector<std::pair<BlockId, BlockId>> copies_;
  std::size_t suspects_ = 0;
  std::uint64_t preemptions_ = 0;
  std::uint64_t reused_tokens_ = 0;
};

}  // namespace bascule::ref
