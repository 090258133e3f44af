#include <bascule/trainer_ref/grpo/rollout/request_queue.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kBatchesUnderWay = 2;

std::int64_t tokens_of(const Generation& answer) {
  std::size_t tokens = 0;
  for (const Rollout& rollout : answer.rollouts) tokens += rollout.token_ids.size();
  return static_cast<std::int64_t>(tokens);
}

}  // namespace

RequestQueue::RequestQueue(std::size_t engines, std::int64_t batch, std::function<void(const std::string&)> log)
    : log_(std::move(log)), engines_(engines, Engine{.batch = batch}), meter_(engines) {}

void RequestQueue::set_batch(std::size_t engine, std::int64_t completions) {
  const std::lock_guard lock(mutex_);
  engines_[engine].batch = completions;
  changed_.notify_all();
}

std::shared_ptr<RequestQueue::Call> RequestQueue::add(std::vector<RolloutRequest> requests, Place place) {
  auto call = std::make_shared<Call>();
  call->requests = std::move(requests);
  call->answers.resize(call->requests.size());
  call->open = call->requests.size();
  for (std::size_t i = 0; i < call->answers.size(); ++i) call->answers[i].request = i;
  std::list<Job> jobs;
  for (std::size_t i = 0; i < call->requests.size(); ++i) jobs.push_back({.call = call, .request = i});
  const std::lock_guard lock(mutex_);
  jobs_.splice(place == Place::kFirst ? jobs_.begin() : jobs_.end(), jobs);
  changed_.notify_all();
  return call;
}

bool RequestQueue::wait(const Call& call, Time time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time, [&] { return call.open == 0 || cancelled_; });
}

std::size_t RequestQueue::answered(const Call& call) const {
  const std::lock_guard lock(mutex_);
  return call.answers.size() - call.open;
}

std::size_t RequestQueue::close(const std::shared_ptr<Call>& call) {
  const std::lock_guard lock(mutex_);
  jobs_.remove_if([&](const Job& job) { return job.call == call; });
  changed_.notify_all();  // no request may wait now
  return std::exchange(call->open, 0);
}

bool RequestQueue::has_room(const Engine& engine) const {
  return engine.state == State::kUp && engine.under_way < kBatchesUnderWay * engine.batch;
}

// Whether no other engine with room has a smaller share of its batch in flight.
bool RequestQueue::is_next(const Engine& engine) const {
  return has_room(engine) && std::none_of(engines_.begin(), engines_.end(), [&](const Engine& other) {
           return has_room(other) && other.under_way * engine.batch < engine.under_way * other.batch;
         });
}

bool RequestQueue::another_is_up(std::size_t engine) const {
  for (std::size_t other = 0; other < engines_.size(); ++other)
    if (other != engine && engines_[other].state != State::kDown) return true;
  return false;
}

std::optional<RequestQueue::Job> RequestQueue::take(std::size_t engine) {
  std::unique_lock lock(mutex_);
  while (!cancelled_) {
    for (auto job = jobs_.begin(); job != jobs_.end() && has_room(engines_[engine]); ++job) {
      // A request that came back goes to any other engine, even the busiest.
      if (job->lost_by ? *job->lost_by == engine && another_is_up(engine) : !is_next(engines_[engine])) continue;
      Job taken = std::move(*job);
      jobs_.erase(job);
      engines_[engine].under_way += taken.asks().completions;
      meter_.begin(engine, std::chrono::steady_clock::now());
      changed_.notify_all();  // another engine may be next now
      return taken;
    }
    changed_.wait(lock);
  }
  return std::nullopt;
}

// Queues the job again; the second time, gives it up.
void RequestQueue::lose(Job& job, const std::string& why) {
  Call& call = *job.call;
  call.last_loss = why;
  if (!std::exchange(job.was_lost, true)) return jobs_.push_front(std::move(job));
  log_(cat("a request was lost twice, last with ", why));
  --call.open;
}

bool RequestQueue::settle(std::size_t number, Job job, Attempt attempt) {
  const std::lock_guard lock(mutex_);
  const Outcome outcome = attempt.outcome;
  Engine& engine = engines_[number];
  engine.under_way -= job.asks().completions;
  const Time now = std::chrono::steady_clock::now();
  meter_.end(number, now, tokens_of(attempt.answer));
  const bool is_well = outcome == Outcome::kAnswered || outcome == Outcome::kRefused;
  const bool in_doubt = !is_well && engine.state == State::kUp;
  if (in_doubt) engine.state = State::kInDoubt;
  if (outcome == Outcome::kAnswered) last_answer_ = now;
  changed_.notify_all();
  Call& call = *job.call;
  const std::string why = cat(attempt.url, ": ", attempt.why);
  if (cancelled_ || call.open == 0) return in_doubt;  // no caller waits for it any longer
  switch (outcome) {
    case Outcome::kAnswered:
      attempt.answer.request = job.request;
      call.answers[job.request] = std::move(attempt.answer);
      --call.open;
      break;
    case Outcome::kRefused:
      call.last_loss = why;
      log_(cat("engine ", attempt.url, " refused a request, which is lost: ", attempt.why));
      --call.open;
      break;
    case Outcome::kBusy: jobs_.push_front(std::move(job)); break;
    case Outcome::kUnreached:
    case Outcome::kDied:
      call.last_loss = why;
      if (outcome == Outcome::kDied) job.lost_by = number;
      jobs_.push_front(std::move(job));
      break;
    case Outcome::kLost:
      job.lost_by = number;
      lose(job, why);
      break;
  }
  return in_doubt;
}

bool RequestQueue::set_up(std::size_t engine, bool up) {
  const std::lock_guard lock(mutex_);
  meter_.set_up(engine, std::chrono::steady_clock::now(), up);
  const State before = std::exchange(engines_[engine].state, up ? State::kUp : State::kDown);
  changed_.notify_all();  // lost jobs may now have to go back to this engine
  return (before == State::kDown) == up;
}

void RequestQueue::wait_until_taken() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() || cancelled_; });
}

bool RequestQueue::pause(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return cancelled_; });
}

RequestQueue::Time RequestQueue::last_answer() const {
  const std::lock_guard lock(mutex_);
  return last_answer_;
}

std::vector<EngineUse> RequestQueue::use() {
  const std::lock_guard lock(mutex_);
  return meter_.use(std::chrono::steady_clock::now());
}

void RequestQueue::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

bool RequestQueue::is_cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

}  // namespace bascule::ref
