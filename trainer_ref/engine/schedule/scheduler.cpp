#include <bascule/trainer_ref/engine/schedule/scheduler.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace bascule::ref {
namespace {

std::size_t blocks_for(std::size_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

std::size_t left_to_compute(const Sequence& sequence) { return sequence.tokens.size() - sequence.computed; }

// The further blocks that it soon needs: for its tokens and its next kBlockTokens tokens, and one for each sibling.
std::size_t soon_needed(const Sequence& sequence) {
  // The last token that it generates is not computed.
  const auto longest =
      sequence.prompt_tokens + static_cast<std::size_t>(std::max<std::int64_t>(sequence.max_tokens, 1)) - 1;
  const std::size_t wanted =
      blocks_for(std::min(sequence.tokens.size() + kBlockTokens, longest)) + sequence.siblings.size();
  return wanted - std::min(wanted, sequence.blocks.size());
}

bool begun(const Sequence& sequence) { return sequence.generated() > 0 || sequence.suspect; }

}  // namespace

void append(Sequence& sequence, Sample sample, MadeBy made_by) {
  if (sequence.max_tokens == 0) {
    sequence.finish = FinishReason::kLength;
    return;
  }
  const std::int64_t token = sample.token;
  sequence.tokens.push_back(token);
  sequence.epochs.push_back(made_by.epoch);
  sequence.versions.push_back(made_by.version);
  if (sequence.adapter != kNoAdapter) {
    sequence.adapter_epochs.push_back(made_by.adapter_epoch);
    sequence.adapter_versions.push_back(made_by.adapter_version);
  }
  if (std::binary_search(sequence.stop_token_ids.begin(), sequence.stop_token_ids.end(), token) ||
      (sequence.text_end && sequence.text_end(token))) {
    sequence.finish = FinishReason::kStop;
  } else if (static_cast<std::int64_t>(sequence.generated()) >= sequence.max_tokens) {
    sequence.finish = FinishReason::kLength;
  }
  if (sequence.sink) sequence.sink->put({sequence.choice, sample, made_by, sequence.finish, sequence.prompt_scores});
  sequence.samples.push_back(std::move(sample));
}

void Scheduler::serve(AdapterId adapter, Epoch epoch, Version version) {
  adapters_[adapter] = {.root = pool_.new_root(), .epoch = epoch, .version = version};
}

PrefixId Scheduler::root_of(const Sequence& sequence) const {
  return sequence.adapter == kNoAdapter ? kNoPrefix : adapters_.at(sequence.adapter).root;
}

MadeBy Scheduler::made_by(const Sequence& sequence, MadeBy served) const {
  if (sequence.adapter == kNoAdapter) return served;
  const Adapter& adapter = adapters_.at(sequence.adapter);
  served.adapter_epoch = adapter.epoch;
  served.adapter_version = adapter.version;
  return served;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

std::size_t Scheduler::occupied() const {
  std::size_t places = running_.size();
  for (const auto& sequence : running_) places += sequence->siblings.size();
  return places;
}

// Makes room in the cache for the first `tokens` of `sequence`, or changes nothing.
bool Scheduler::reserve(Sequence& sequence, std::size_t tokens) {
  const std::size_t held = sequence.blocks.size();
  const std::size_t wanted = blocks_for(tokens);
  if (wanted > held && wanted - held > pool_.available()) return false;
  while (sequence.blocks.size() < wanted) sequence.blocks.push_back(*pool_.allocate());
  return true;
}

void Scheduler::free(Sequence& sequence) {
  // From last to first: a prefix is then evicted from its end, and its rest can still be found.
  for (std::size_t i = sequence.blocks.size(); i-- > 0;) pool_.free(sequence.blocks[i]);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.published = 0;
}

void Scheduler::preempt_youngest() {
  free(*running_.back());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++preemptions_;
}

void Scheduler::put_back(const Step& step) {
  for (const Row& row : step.rows)
    if (!std::exchange(row.sequence->suspect, true)) ++suspects_;
  while (!running_.empty()) preempt_youngest();
  copies_.clear();
}

// Continues the sequence that was begun, else begins the first that waits.
Step Scheduler::schedule_a_suspect() {
  const auto suspected = [](const auto& sequence) { return sequence->suspect; };
  auto found = std::find_if(running_.begin(), running_.end(), suspected);
  if (found == running_.end()) {
    const auto waits = std::find_if(waiting_.begin(), waiting_.end(), suspected);
    running_.push_back(std::move(*waits));
    waiting_.erase(waits);
    found = running_.end() - 1;
    begin(**found);
  }
  Sequence& sequence = **found;
  const std::size_t count = std::min(left_to_compute(sequence), limits_.max_step_tokens);
  if (!reserve(sequence, sequence.computed + count)) {
    preempt_all_but(sequence);
    reserve(sequence, sequence.computed + count);
  }
  Step step;
  step.copies = std::exchange(copies_, {});
  step.rows.push_back({&sequence, sequence.computed, count});
  return step;
}

void Scheduler::preempt_all_but(const Sequence& sequence) {
  std::stable_partition(running_.begin(), running_.end(), [&](const auto& other) { return other.get() == &sequence; });
  while (running_.size() > 1) preempt_youngest();
}

bool Scheduler::has_begun() const {
  return !running_.empty() ||
         std::any_of(waiting_.begin(), waiting_.end(), [](const auto& sequence) { return begun(*sequence); });
}

Step Scheduler::schedule(Admits admits) {
  if (suspects_ > 0) return schedule_a_suspect();
  Step step;
  step.copies = std::exchange(copies_, {});
  std::size_t budget = limits_.max_step_tokens;
  const std::uint64_t preempted_before = preemptions_;
  // Generating sequences come first: a long prompt must not hold them up.
  for (const bool generating : {true, false}) {
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Sequence& sequence = *running_[i];
      const std::size_t left = left_to_compute(sequence);
      if ((left == 1) != generating) continue;
      const std::size_t count = std::min(left, budget);
      while (i < running_.size() && !reserve(sequence, sequence.computed + count)) preempt_youngest();
      if (i >= running_.size()) break;  // it was the youngest itself
      step.rows.push_back({&sequence, sequence.computed, count});
      budget -= count;
    }
  }
  // A pre-empted sequence may have been given a row before.
  std::erase_if(step.rows, [](const Row& row) { return row.sequence->blocks.empty(); });
  if (preemptions_ == preempted_before)
    while (admit(admits, budget, step)) {
    }
  return step;
}

std::optional<Step> Scheduler::plan_behind(const Step& step) {
  if (suspects_ > 0 || !copies_.empty()) return std::nullopt;
  if (!waiting_.empty() && occupied() + 1 + waiting_.front()->siblings.size() <= limits_.max_batch) return std::nullopt;
  Step behind;
  std::size_t running = 0;  // of the step's sequences
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const Row& row = step.rows[i];
    if (row.sequence == nullptr) continue;
    Sequence& sequence = *row.sequence;
    if (!row.samples() || sequence.wants_scores() || !sequence.siblings.empty()) return std::nullopt;
    ++running;
    if (static_cast<std::int64_t>(row.draw()) + 1 >= sequence.max_tokens) continue;
    if (!reserve(sequence, row.end() + 1)) return std::nullopt;
    behind.rows.push_back({.sequence = &sequence, .begin = row.end(), .count = 1, .drawn_by = i});
  }
  if (running < running_.size() || behind.empty()) return std::nullopt;
  return behind;
}

// Admits the first waiting sequence that may run, if there is room for it.
bool Scheduler::admit(Admits admits, std::size_t& budget, Step& step) {
  const auto first = std::find_if(waiting_.begin(), waiting_.end(), [admits](const auto& sequence) {
    return admits == Admits::kAll || begun(*sequence);
  });
  if (first == waiting_.end() || budget == 0) return false;
  Sequence& sequence = **first;
  if (occupied() + 1 + sequence.siblings.size() > limits_.max_batch) return false;
  reuse_prefix(sequence);
  const std::size_t count = std::min(left_to_compute(sequence), budget);
  if (!has_room_for(sequence) || !reserve(sequence, sequence.computed + count)) {
    free(sequence);
    return false;
  }
  reused_tokens_ += sequence.computed;
  step.rows.push_back({&sequence, sequence.computed, count});
  budget -= count;
  running_.push_back(std::move(*first));
  waiting_.erase(first);
  return true;
}

// A sequence that runs alone needs no room beside it.
bool Scheduler::has_room_for(const Sequence& sequence) const {
  if (running_.empty()) return true;
  std::size_t needed = soon_needed(sequence);
  for (const auto& other : running_) needed += soon_needed(*other);
  return needed <= pool_.available();
}

void Scheduler::begin(Sequence& sequence) {
  sequence.generation = pool_.generation();
  sequence.prefix = sequence.root = root_of(sequence);
}

bool Scheduler::is_of_these_weights(const Sequence& sequence) const {
  return sequence.generation == pool_.generation() && sequence.root == root_of(sequence);
}

void Scheduler::reuse_prefix(Sequence& sequence) {
  begin(sequence);
  if (sequence.wants_scores()) return;  // they need every position's logits
  const std::span<const std::int64_t> tokens(sequence.tokens);
  // At least one token is computed: the step must make logits.
  while (sequence.computed + kBlockTokens < tokens.size()) {
    const auto match = pool_.find(sequence.prefix, tokens.subspan(sequence.computed, kBlockTokens));
    if (!match) return;
    pool_.retain(match->block);
    sequence.blocks.push_back(match->block);
    sequence.prefix = match->prefix;
    sequence.computed += kBlockTokens;
    ++sequence.published;
  }
}

void Scheduler::publish_blocks(Sequence& sequence) {
  // Keys and values of other weights are good enough to continue with, but not to be given to another sequence.
  if (!is_of_these_weights(sequence)) return;
  const std::span<const std::int64_t> tokens(sequence.tokens);
  while ((sequence.published + 1) * kBlockTokens <= sequence.computed) {
    const auto block_tokens = tokens.subspan(sequence.published * kBlockTokens, kBlockTokens);
    sequence.prefix = pool_.publish(sequence.blocks[sequence.published], sequence.prefix, block_tokens);
    ++sequence.published;
  }
}

Scheduler::Sequences Scheduler::complete(const Step& step, std::span<RowOutput> outputs, MadeBy served, Step* behind) {
  Sequences ended;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    if (step.rows[i].sequence == nullptr) continue;
    Sequence& sequence = *step.rows[i].sequence;
    const bool sampled = step.rows[i].samples();
    if (!outputs[i].prompt.empty())
      std::move(outputs[i].prompt.begin(), outputs[i].prompt.end(), std::back_inserter(sequence.prompt_scores->of));
    sequence.computed += step.rows[i].count;
    publish_blocks(sequence);
    if (!sampled) continue;
    if (std::exchange(sequence.suspect, false)) --suspects_;
    Sequences siblings = std::exchange(sequence.siblings, {});
    std::vector<Sample>& samples = outputs[i].samples;
    const MadeBy by = made_by(sequence, served);
    append(sequence, std::move(samples.front()), by);
    fork(sequence, std::move(siblings), std::span(samples).subspan(1), by, ended);
  }
  if (behind != nullptr)
    for (Row& row : behind->rows)
      if (row.sequence->finish != FinishReason::kNone) row.sequence = nullptr;
  for (auto& sequence : running_) {
    if (sequence->finish == FinishReason::kNone) continue;
    free(*sequence);
    ended.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
  return ended;
}

// The siblings of `lead`, whose prompt is computed, begin with a token each. They share its full blocks; a last block
// that is part full is copied, since each will write its own tokens after the prompt.
void Scheduler::fork(Sequence& lead, Sequences siblings, std::span<Sample> samples, MadeBy made_by, Sequences& ended) {
  const std::size_t full = lead.prompt_tokens / kBlockTokens;
  const bool part = lead.prompt_tokens % kBlockTokens != 0;
  for (std::size_t i = 0; i < siblings.size(); ++i) {
    std::unique_ptr<Sequence> sibling = std::move(siblings[i]);
    append(*sibling, std::move(samples[i]), made_by);
    if (sibling->finish != FinishReason::kNone) {
      ended.push_back(std::move(sibling));
      continue;
    }
    if (part && pool_.available() == 0) {  // the cache is full: computed again later, with the token that it has
      waiting_.push_front(std::move(sibling));
      ++preemptions_;
      continue;
    }
    sibling->blocks.assign(lead.blocks.begin(), lead.blocks.begin() + static_cast<std::ptrdiff_t>(full));
    for (const BlockId block : sibling->blocks) pool_.retain(block);
    if (part) {
      const BlockId own = *pool_.allocate();
      copies_.emplace_back(lead.blocks[full], own);
      sibling->blocks.push_back(own);
    }
    sibling->computed = lead.prompt_tokens;
    sibling->published = std::min(lead.published, full);
    sibling->prefix = lead.prefix;
    sibling->root = lead.root;
    sibling->generation = lead.generation;
    running_.push_back(std::move(sibling));
  }
}

Scheduler::Sequences Scheduler::remove(RequestId request) {
  Sequences removed;
  const auto take = [&](auto& from) {
    for (auto& sequence : from) {
      if (sequence->request != request) continue;
      free(*sequence);
      if (std::exchange(sequence->suspect, false)) --suspects_;
      Sequences siblings = std::exchange(sequence->siblings, {});
      removed.push_back(std::move(sequence));
      for (auto& sibling : siblings) removed.push_back(std::move(sibling));
    }
    std::erase(from, nullptr);
  };
  take(running_);
  take(waiting_);
  return removed;
}

}  // namespace bascule::ref
