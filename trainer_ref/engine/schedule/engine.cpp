#include <bascule/trainer_ref/engine/schedule/engine.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The longest time for which an idle engine sleeps, although every event that it waits for also wakes it.
constexpr std::chrono::seconds kIdleWait{1};

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), pool_(options_.blocks), scheduler_(options_.limits, pool_) {}

Engine::~Engine() { stop(); }

void Engine::start(std::unique_ptr<Runner> runner) {
  runner_ = std::move(runner);
  thread_ = std::thread([this] { loop(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return looked_; });
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Callbacks and sinks may hold what the caller is about to destroy.
  for (const auto& [id, pending] : pending_) scheduler_.remove(id);
  pending_.clear();
  falling_asleep_.clear();
  pause_.reset();
  const std::lock_guard lock(mutex_);
  inbox_.clear();
}

std::vector<Engine::Command> Engine::next_commands(bool busy) {
  std::unique_lock lock(mutex_);
  if (!busy)
    changed_.wait_until(lock, Clock::now() + kIdleWait, [this] { return woken_ || stopping_ || !inbox_.empty(); });
  woken_ = false;
  return std::exchange(inbox_, {});
}

void Engine::loop() {
  flip();  // the first commit also lets a receiver greet its sender
  publish_stats();
  {
    const std::lock_guard lock(mutex_);
    looked_ = true;
  }
  changed_.notify_all();
  const auto stopped = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  while (!stopped()) {
    std::vector<Command> commands = next_commands(ahead_ || (served_.ready && may_step()));
    if (ahead_) {
      served_ = runner_->look();
      report_connection();
      if (!commands.empty() || served_.pending || !served_.ready) complete_ahead();
    }
    for (Command& command : commands) std::visit([this](auto& given) { obey(std::move(given)); }, command);
    if (!ahead_) adapters_.remove_unused(*runner_, [this](AdapterId id) { return !requests_of(id).empty(); });
    if (!ahead_ && !flip_waits()) flip();
    publish_stats();
    if (served_.ready) {
      step();
    } else if (!pending_.empty()) {  // taken while a version was served; clients may retry elsewhere
      fail_all(unavailable("the version that was served is no longer served",
                           served_.error.ok() ? "" : cat(": ", served_.error.message())));
    }
    settle_pause();
    if (!falling_asleep_.empty() && !ahead_ && scheduler_.running() + scheduler_.waiting() == 0) fall_asleep();
  }
  if (ahead_) static_cast<void>(runner_->finish());
  runner_.reset();
}

// Whether there is work that a pause allows.
bool Engine::may_step() const {
  if (!pause_) return scheduler_.running() + scheduler_.waiting() > 0;
  return pause_->mode != PauseMode::kKeep && scheduler_.has_begun();
}

// Returns true if the flip must wait. Under kWait it must wait while anything runs, even if no version is pending: a
// commit would take a version that arrives at that very moment. It does not wait for what a pause keeps from running.
bool Engine::flip_waits() {
  const bool frozen = pause_ && pause_->mode == PauseMode::kKeep;
  if (options_.on_update != OnUpdate::kWait || !served_.ready || frozen || !scheduler_.has_begun()) return false;
  served_ = runner_->look();
  report_connection();
  if (!served_.ready) return false;  // what runs must not continue
  if (!served_.pending) flip_by_.reset();
  if (served_.pending && !flip_by_) flip_by_ = Deadline(options_.wait_at_most).at();
  return !flip_by_ || Clock::now() < *flip_by_;
}

void Engine::flip() {
  flip_by_.reset();
  const Clock::time_point begin = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    ++commits_begun_;
  }
  served_ = runner_->commit();  // not under the mutex: it may wait for the caller of wake()
  const double seconds = seconds_between(begin, Clock::now());
  const bool adapters_changed = flip_adapters(seconds);
  {
    const std::lock_guard lock(mutex_);
    ++commits_ended_;
    stats_.served = served_;
  }
  report_connection();
  if (served_.changed || adapters_changed) counted_.stall_seconds += seconds;
  if (!served_.changed) return;
  adapters_.directory().trust_all();
  pool_.drop_prefixes();
  ++counted_.flips;
  options_.log(cat("serving version ", served_.version, " of epoch ", served_.epoch, ", flipped in ",
                   absl::FormatDuration(absl::Seconds(seconds)), " with ", scheduler_.running(), " running"));
  if (options_.on_update == OnUpdate::kAbort) obey(AbortAll{});
}

// Requests of an adapter whose version must no longer be used end; the others go on.
bool Engine::flip_adapters(double seconds) {
  bool changed = false;
  for (const auto& [id, name, served] : adapters_.take_changes(*runner_)) {
    if (!served.ready) {
      for (const RequestId request : requests_of(id))
        fail(request, unavailable("the version of the adapter ", name, " is no longer served",
                                  served.error.ok() ? "" : cat(": ", served.error.message())));
    } else if (served.changed) {
      changed = true;
      ++counted_.flips;
      options_.log(cat("serving version ", served.version, " of epoch ", served.epoch, " of the adapter ", name,
                       ", flipped in ", absl::FormatDuration(absl::Seconds(seconds))));
      if (options_.on_update == OnUpdate::kAbort) abort(requests_of(id));
    }
  }
  return changed;
}

std::vector<RequestId> Engine::requests_of(AdapterId adapter) const {
  std::vector<RequestId> requests;
  for (const auto& [id, pending] : pending_)
    if (pending.adapter == adapter) requests.push_back(id);
  return requests;
}

void Engine::report_connection() {
  constexpr std::size_t kMost = 16;  // alternating reasons must not fill a disk
  if (served_.error.ok()) {
    if (served_.attached && !reported_.empty()) {
      options_.warn("joined its sender");
      reported_.clear();
    }
    return;
  }
  std::string why(message_of(served_.error));
  if (reported_.size() >= kMost || std::find(reported_.begin(), reported_.end(), why) != reported_.end()) return;
  options_.warn(cat(served_.attached ? "serves no new version: " : "has not joined a sender: ", why));
  reported_.push_back(std::move(why));
}

void Engine::step() {
  Step step;
  if (ahead_) {
    step = *std::exchange(ahead_, std::nullopt);
  } else {
    if (!may_step()) return;
    step = scheduler_.schedule(flip_by_ || pause_ ? Scheduler::Admits::kBegun : Scheduler::Admits::kAll);
    if (step.empty()) return;
    runner_->start(step);
  }
  if (runner_->runs_ahead()) ahead_ = scheduler_.plan_behind(step);
  if (ahead_) runner_->start(*ahead_);
  complete(std::move(step));
}

void Engine::complete_ahead() { complete(*std::exchange(ahead_, std::nullopt)); }

void Engine::complete(Step step) {
  absl::StatusOr<std::vector<RowOutput>> outputs = runner_->finish();
  ++counted_.steps;
  if (!outputs.ok()) return step_failed(std::move(step), outputs.status());
  for (std::size_t i = 0; i < step.rows.size(); ++i)
    if (step.rows[i].sequence != nullptr && step.rows[i].sequence->max_tokens > 0)
      counted_.generated_tokens += (*outputs)[i].samples.size();
  end(scheduler_.complete(step, *outputs, {served_.epoch, served_.version}, ahead_ ? &*ahead_ : nullptr));
}

// The cache is lost. If the step had one sequence, its request ends. If it had several, put_back() lets each run alone,
// to find the one that fails, unless that has ended meanwhile. What earlier weights left in the cache may have failed a
// sequence: then it also is computed anew, once, and the weights that are served now are not blamed.
void Engine::step_failed(Step step, const absl::Status& why) {
  const bool alone = step.rows.size() == 1;
  if (std::exchange(ahead_, std::nullopt)) static_cast<void>(runner_->finish());  // it used tokens of the failed one
  std::erase_if(step.rows, [](const Row& row) { return row.sequence == nullptr; });
  options_.log(cat("a step of ", step.rows.size(), " sequences failed: ", why.message()));
  const Sequence* const only = alone && !step.rows.empty() ? step.rows.front().sequence : nullptr;
  const bool is_certain = only != nullptr && scheduler_.is_of_these_weights(*only);
  const bool has_another_try = only != nullptr && !is_certain && !only->suspect;
  pool_.drop_prefixes();
  scheduler_.put_back(step);
  if (only == nullptr || has_another_try) return;
  const Sequence& sequence = *only;
  const std::optional<AdapterEntry> adapter = adapters_.directory().find(sequence.adapter);
  const std::string of_model = cat("version ", served_.version, " of the model");
  if (!adapter) return fail(sequence.request, annotate(why, of_model));
  const std::string with = cat(of_model, " with version ", adapter->served.version, " of the adapter ", adapter->name);
  if (!absl::IsDataLoss(why) || !is_certain) return fail(sequence.request, annotate(why, with));
  // Else each of its requests would make all others run alone.
  const absl::Status unsound = unavailable(with, ": ", why.message());
  adapters_.directory().distrust(adapter->id, unsound);
  for (const RequestId request : requests_of(adapter->id)) fail(request, unsound);
}

// Hands sequences to their requests, and whole requests to their callers.
void Engine::end(Scheduler::Sequences sequences) {
  for (auto& sequence : sequences) {
    const auto found = pending_.find(sequence->request);
    Pending& pending = found->second;
    pending.ended.push_back(std::move(sequence));
    if (pending.ended.size() < pending.choices) continue;
    std::sort(pending.ended.begin(), pending.ended.end(),
              [](const auto& a, const auto& b) { return a->choice < b->choice; });
    {
      const std::lock_guard lock(mutex_);
      sequences_ -= pending.choices;
    }
    publish_stats();  // a client that has the answer finds it counted
    pending.done({absl::OkStatus(), std::move(pending.ended)});
    pending_.erase(found);
  }
}

void Engine::fail_all(const absl::Status& why) {
  pool_.drop_prefixes();  // those weights are no longer served
  while (!pending_.empty()) fail(pending_.begin()->first, why);
}

void Engine::fail(RequestId request, const absl::Status& why) {
  auto failed = pending_.extract(request);
  scheduler_.remove(request);
  {
    const std::lock_guard lock(mutex_);
    sequences_ -= failed.mapped().choices;
  }
  failed.mapped().done({why, {}});
}

void Engine::publish_stats() {
  EngineStats stats = counted_;
  stats.served = served_;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.blocks = pool_.size();
  stats.blocks_used = pool_.size() - pool_.available();
  stats.reused_tokens = scheduler_.reused_tokens();
  stats.preemptions = scheduler_.preemptions();
  stats.graphs = runner_->graphs();
  stats.paused = pause_.has_value();
  const std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
}

}  // namespace bascule::ref
