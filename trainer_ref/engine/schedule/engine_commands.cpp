// What other threads ask of the engine, and how its own thread does it, between two steps.
#include <iterator>
#include <utility>

#include <bascule/trainer_ref/engine/schedule/engine.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::Status Engine::check_adapter(AdapterId id) const {
  if (id == kNoAdapter) return absl::OkStatus();
  const std::optional<AdapterEntry> adapter = adapters_.directory().find(id);
  if (!adapter) return absl::NotFoundError("the adapter was unloaded");
  if (adapter->served.ready) return adapter->unsound;
  return unavailable("no version of the adapter ", adapter->name, " is served",
                     adapter->served.error.ok() ? " yet" : cat(": ", adapter->served.error.message()));
}

absl::StatusOr<RequestId> Engine::submit(CompletionRequest request, Done done) {
  RequestId id = 0;
  BASCULE_TRY(check_adapter(request.adapter));
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return unavailable("the engine sleeps; POST /wake_up first");
    if (!stats_.served.ready)
      return unavailable("no version is served yet",
                         stats_.served.error.ok() ? "" : cat(": ", stats_.served.error.message()));
    if (sequences_ + request.choices() > options_.limits.max_batch + options_.max_waiting) {
      ++rejected_;
      return absl::ResourceExhaustedError(cat(sequences_, " sequences run or wait; with these ", request.choices(),
                                              " they would be more than ",
                                              options_.limits.max_batch + options_.max_waiting, "; try again later"));
    }
    sequences_ += request.choices();
    id = ++last_request_;
    inbox_.emplace_back(Submitted{id, std::make_unique<CompletionRequest>(std::move(request)), std::move(done)});
  }
  changed_.notify_all();
  return id;
}

void Engine::cancel(RequestId request) { send(Cancelled{request}); }
void Engine::abort_all() { send(AbortAll{}); }

void Engine::sleep(bool abort, Told done) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ++sleeps_;
    inbox_.emplace_back(Sleep{abort, std::move(done)});
  }
  changed_.notify_all();
}

void Engine::wake_up(Told done) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.emplace_back(WakeUp{sleeps_, std::move(done)});
  }
  changed_.notify_all();
}

void Engine::pause(PauseMode mode, bool clear_cache, Told done) { send(Pause{mode, clear_cache, {std::move(done)}}); }
void Engine::resume(Told done) { send(Resume{std::move(done)}); }
void Engine::reset_cache(bool recompute, Told done) { send(ResetCache{recompute, std::move(done)}); }

void Engine::send(Command command) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(command));
  }
  changed_.notify_all();
}

void Engine::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void Engine::load_adapter(AdapterEntry entry, bool in_place, std::unique_ptr<AdapterWeights> weights, Told done) {
  send(LoadAdapter{std::move(entry), in_place, std::move(weights), std::move(done)});
}
void Engine::unload_adapter(std::string name, Told done, AdapterId only) {
  send(UnloadAdapter{std::move(name), only, std::move(done)});
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.rejected = rejected_;
  stats.asleep = closed_;
  return stats;
}

std::uint64_t Engine::commits_begun() const {
  const std::lock_guard lock(mutex_);
  return commits_begun_;
}

std::uint64_t Engine::commits_ended() const {
  const std::lock_guard lock(mutex_);
  return commits_ended_;
}

void Engine::obey(Submitted command) {
  CompletionRequest& request = *command.request;
  ++counted_.requests;
  pending_[command.id] = {std::move(command.done), request.adapter, request.choices(), {}};
  // It may have gone since submit().
  if (const absl::Status status = check_adapter(request.adapter); !status.ok()) return fail(command.id, status);
  std::uint64_t choice = 0;
  for (const std::vector<std::int64_t>& prompt : request.prompts) {
    counted_.prompt_tokens += prompt.size();
    std::shared_ptr<PromptScores> scores;
    if (request.prompt_logprobs) {
      scores = std::make_shared<PromptScores>();
      scores->count = *request.prompt_logprobs;
    }
    std::unique_ptr<Sequence> lead;
    for (std::int64_t i = 0; i < request.n; ++i) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = command.id;
      sequence->choice = choice++;
      sequence->adapter = request.adapter;
      sequence->sampling = request.sampling;
      sequence->max_tokens =
          std::min(request.max_tokens, request.max_length - static_cast<std::int64_t>(prompt.size()));
      sequence->stop_token_ids = request.stop_token_ids;
      if (request.text_end) sequence->text_end = request.text_end(prompt);
      sequence->prompt_scores = scores;
      sequence->sink = request.sink;
      sequence->tokens = prompt;
      sequence->prompt_tokens = prompt.size();
      if (lead) {
        lead->siblings.push_back(std::move(sequence));
      } else {
        lead = std::move(sequence);
      }
    }
    scheduler_.add(std::move(lead));
  }
}

void Engine::obey(Cancelled command) {
  const auto found = pending_.find(command.id);
  if (found == pending_.end()) return;
  scheduler_.remove(command.id);
  ++counted_.cancelled;
  const std::lock_guard lock(mutex_);
  sequences_ -= found->second.choices;
  pending_.erase(found);
}

void Engine::obey(AbortAll) {
  std::vector<RequestId> all;
  for (const auto& [id, pending] : pending_) all.push_back(id);
  abort(all);
}

void Engine::abort(const std::vector<RequestId>& requests) {
  Scheduler::Sequences aborted;
  for (const RequestId id : requests) {
    for (auto& sequence : scheduler_.remove(id)) {
      sequence->finish = FinishReason::kAbort;
      aborted.push_back(std::move(sequence));
    }
  }
  end(std::move(aborted));
}

void Engine::obey(Sleep command) {
  end_pause();  // what it keeps must end before the cache is freed
  falling_asleep_.push_back(std::move(command.done));
  if (command.abort) obey(AbortAll{});
}

void Engine::fall_asleep() {
  absl::Status status;
  if (!std::exchange(asleep_, true)) {
    pool_.drop_prefixes();
    status = runner_->sleep();
  }
  publish_stats();
  for (const Told& done : std::exchange(falling_asleep_, {})) done(status);
}

void Engine::obey(const WakeUp& command) {
  for (const Told& done : std::exchange(falling_asleep_, {}))
    done(absl::AbortedError("the engine was woken up before it slept"));
  end_pause();
  absl::Status status;
  if (asleep_) status = runner_->wake_up();
  if (status.ok()) {
    asleep_ = false;
    const std::lock_guard lock(mutex_);
    if (command.sleeps == sleeps_) closed_ = false;  // else a later sleep is still to come
  }
  publish_stats();
  command.done(status);
}

void Engine::obey(Pause command) {
  if (pause_) std::move(pause_->asked.begin(), pause_->asked.end(), std::back_inserter(command.asked));
  pause_ = std::move(command);
  if (pause_->mode == PauseMode::kAbort) obey(AbortAll{});
}

void Engine::obey(const Resume& command) {
  end_pause();
  publish_stats();
  command.done(absl::OkStatus());
}

void Engine::end_pause() {
  if (!pause_) return;
  const Pause ended = *std::exchange(pause_, std::nullopt);
  for (const Told& done : ended.asked)
    done(absl::AbortedError("the pause was ended before the running requests had finished"));
}

// Tells those who paused the engine that nothing runs any more.
void Engine::settle_pause() {
  if (!pause_ || pause_->asked.empty() || ahead_ || may_step()) return;
  if (pause_->clear_cache && pause_->mode != PauseMode::kKeep) pool_.drop_prefixes();
  publish_stats();
  for (const Told& done : std::exchange(pause_->asked, {})) done(absl::OkStatus());
}

void Engine::obey(const ResetCache& command) {
  if (command.recompute) scheduler_.put_back({});
  pool_.drop_prefixes();
  command.done(absl::OkStatus());
}

void Engine::obey(LoadAdapter command) {
  const std::string name = command.entry.name;
  const absl::Status status =
      adapters_.load(*runner_, std::move(command.entry), command.in_place, std::move(command.weights));
  if (status.ok()) options_.log(cat("loaded the adapter ", name));
  command.done(status);
}

void Engine::obey(const UnloadAdapter& command) {
  const absl::Status status = adapters_.unload(command.name, command.only);
  if (status.ok()) options_.log(cat("unloaded the adapter ", command.name));
  command.done(status);
}

}  // namespace bascule::ref
