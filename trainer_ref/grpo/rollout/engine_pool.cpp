#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = RequestQueue::Outcome;

constexpr std::chrono::milliseconds kHealthInterval{100};
constexpr std::chrono::milliseconds kStoppedInterval{200};
constexpr std::chrono::seconds kLogInterval{60};

}  // namespace

struct EnginePool::Impl {
  explicit Impl(EnginePoolOptions given)
      : options(std::move(given)),
        urls(options.urls),
        queue(urls.size(), options.batch, options.log),
        idle(urls.size()) {}

  const EnginePoolOptions options;
  std::mutex mutex;               // guards the members below, except the queue
  std::vector<std::string> urls;  // by engine, the last known one
  RequestQueue queue;
  std::vector<int> idle;                             // idle threads of each engine
  std::vector<std::unique_ptr<HttpClient>> clients;  // one per thread
  std::vector<std::jthread> threads;

  void add_thread(std::size_t engine);
  void serve(std::size_t engine, HttpClient& client);
  std::optional<RequestQueue::Job> take(std::size_t engine);
  RequestQueue::Attempt ask(std::size_t engine, HttpClient& client, const RolloutRequest& request);
  void look_after(std::size_t engine, HttpClient& client);
  bool is_started_again() const;
  absl::Status post_to_all(std::string_view path, std::string_view what);
  absl::Status post(std::size_t engine, std::string_view path, std::string_view what);
  bool may_come_back(Clock::time_point deadline) const;
  std::string find(std::size_t engine);
};

EnginePool::EnginePool(EnginePoolOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  const std::lock_guard lock(impl_->mutex);
  for (std::size_t engine = 0; engine < impl_->urls.size(); ++engine) impl_->add_thread(engine);
}

EnginePool::~EnginePool() {
  cancel();
  for (std::jthread& thread : impl_->threads) thread.join();  // none is added now
}

void EnginePool::cancel() {
  const std::lock_guard lock(impl_->mutex);
  impl_->queue.cancel();
  for (const std::unique_ptr<HttpClient>& client : impl_->clients) client->cancel();
}

std::vector<std::string> EnginePool::urls() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->urls;
}

std::vector<EngineUse> EnginePool::use() { return impl_->queue.use(); }
void EnginePool::wait_until_taken() { impl_->queue.wait_until_taken(); }

absl::Status EnginePool::wait_until_serving(std::uint64_t epoch, absl::Duration timeout) {
  const Clock::time_point deadline = Clock::now() + on_clock(timeout);
  HttpClient client;
  std::map<std::string, std::string> urls;  // by worker
  const std::string& model = impl_->options.model;
  const std::string advice = cat("; start it with ", impl_->options.flag);
  for (std::size_t engine = 0; engine < impl_->options.urls.size(); ++engine)
    while (true) {
      const std::string url = impl_->find(engine);
      const absl::StatusOr<EngineHealth> health = probe_health(url, client, model);
      if (health.ok() && health->attached && health->epoch != epoch)
        return failed_precondition("engine ", url, " is connected to another trainer: it serves epoch ", health->epoch,
                                   ", and this run's is ", epoch, advice);
      if (health.ok() && health->attached && impl_->options.needs_active && !model.empty() && !health->active)
        return failed_precondition("engine ", url,
                                   " answers requests that name no adapter by the base model; start it ",
                                   "with --active-adapter=", model, ", or POST /set_lora_adapter there");
      if (health.ok() && health->attached) {
        const auto [other, is_new] = urls.try_emplace(health->worker, url);
        if (is_new) break;
        return failed_precondition("engines ", other->second, " and ", url, " are one, worker ", health->worker,
                                   "; give each once in --engines");
      }
      if (impl_->options.stopped()) return absl::OkStatus();
      if (impl_->queue.pause(kHealthInterval)) return absl::CancelledError("cancelled");
      if (Clock::now() < deadline) continue;
      if (!health.ok())
        return deadline_exceeded("engine ", url, " serves no version after ", absl::FormatDuration(timeout), ": ",
                                 message_of(health.status()));
      return deadline_exceeded("engine ", url, " has joined no sender after ", absl::FormatDuration(timeout), advice);
    }
  return absl::OkStatus();
}

absl::StatusOr<EngineLimits> EnginePool::limits() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  EngineLimits smallest{.max_model_len = kNone, .max_completions = kNone, .max_batch = kNone};
  HttpClient client;
  client.authorize(impl_->options.api_key);
  const Clock::time_point deadline = Clock::now() + on_clock(impl_->options.request_timeout);
  for (std::size_t engine = 0; engine < impl_->options.urls.size(); ++engine) {
    std::string url = impl_->find(engine);
    absl::StatusOr<EngineLimits> limits = probe_limits(url, client);
    while (!limits.ok() && !absl::IsFailedPrecondition(limits.status()) && impl_->may_come_back(deadline)) {
      impl_->queue.pause(kHealthInterval);
      url = impl_->find(engine);
      limits = probe_limits(url, client);
    }
    if (!limits.ok()) return unavailable("engine ", url, ": ", message_of(limits.status()));
    impl_->queue.set_batch(engine, limits->max_batch);
    smallest.max_model_len = std::min(smallest.max_model_len, limits->max_model_len);
    smallest.max_completions = std::min(smallest.max_completions, limits->max_completions);
    smallest.max_batch = std::min(smallest.max_batch, limits->max_batch);
  }
  return smallest;
}

absl::Status EnginePool::sleep() { return impl_->post_to_all("/sleep", "go to sleep"); }
absl::Status EnginePool::wake_up() { return impl_->post_to_all("/wake_up", "wake up"); }

std::shared_ptr<RequestQueue::Call> EnginePool::ask(std::vector<RolloutRequest> requests) {
  return impl_->queue.add(std::move(requests), RequestQueue::Place::kLast);
}

std::shared_ptr<RequestQueue::Call> EnginePool::ask_first(std::vector<RolloutRequest> requests) {
  return impl_->queue.add(std::move(requests), RequestQueue::Place::kFirst);
}

absl::StatusOr<std::vector<Generation>> EnginePool::answers_to(const std::shared_ptr<RequestQueue::Call>& call) {
  const Clock::time_point began = Clock::now();
  const auto patience = on_clock(2 * impl_->options.request_timeout);
  RequestQueue& queue = impl_->queue;
  // Time in the queue after other requests does not count.
  Clock::time_point hope = began,
                    log_at = began + kLogInterval;  // when an engine was last known to be restarting; when to log next
  const auto deadline = [&] { return std::max(hope, queue.last_answer()) + patience; };
  const std::function<bool()>& stopped = impl_->options.stopped;
  while (!queue.wait(*call, std::min<Clock::time_point>(deadline(), Clock::now() + kStoppedInterval))) {
    const Clock::time_point now = Clock::now();
    if (impl_->is_started_again()) hope = now;
    if (stopped() || now >= deadline()) break;
    if (now < log_at) continue;
    log_at += kLogInterval;
    impl_->options.log(cat(queue.answered(*call), " of ", call->requests.size(), " requests are answered after ",
                           std::chrono::duration_cast<std::chrono::seconds>(now - began).count(), " s"));
  }
  const std::size_t unanswered = queue.close(call);
  if (queue.is_cancelled() || (unanswered > 0 && stopped())) return absl::CancelledError("cancelled");
  if (unanswered > 0) impl_->options.log(cat(unanswered, " requests were given up: no engine answered in time"));
  std::vector<Generation> answers = std::move(call->answers);
  const bool any = std::any_of(answers.begin(), answers.end(), [](const auto& each) { return !each.rollouts.empty(); });
  if (any || answers.empty()) return answers;
  return unavailable("none of ", answers.size(), " requests was answered by ", impl_->options.urls.size(), " engines",
                     call->last_loss.empty() ? "" : cat("; the last: ", call->last_loss));
}

absl::StatusOr<std::vector<Generation>> EnginePool::ask_each(const RolloutRequest& request) {
  std::vector<Generation> answers;
  HttpClient client;
  client.authorize(impl_->options.api_key);
  for (std::size_t engine = 0; engine < impl_->options.urls.size(); ++engine) {
    const Clock::time_point deadline = Clock::now() + on_clock(impl_->options.request_timeout);
    RequestQueue::Attempt attempt = impl_->ask(engine, client, request);
    const auto may_answer = [&] {
      const bool is_full = attempt.outcome == Outcome::kBusy && !impl_->options.stopped() && Clock::now() < deadline;
      return is_full || (attempt.outcome != Outcome::kRefused && impl_->may_come_back(deadline));
    };
    while (attempt.outcome != Outcome::kAnswered && may_answer()) {
      if (impl_->queue.pause(kHealthInterval)) return absl::CancelledError("cancelled");
      attempt = impl_->ask(engine, client, request);
    }
    if (attempt.outcome != Outcome::kAnswered) return unavailable("engine ", attempt.url, ": ", attempt.why);
    answers.push_back(std::move(attempt.answer));
  }
  return answers;
}

// Call under the mutex. Throws std::system_error if no thread can be started; then nothing has changed.
void EnginePool::Impl::add_thread(std::size_t engine) {
  if (queue.is_cancelled()) return;
  auto client = std::make_unique<HttpClient>();
  client->authorize(options.api_key);
  threads.emplace_back([this, engine, client = client.get()] { serve(engine, *client); });
  clients.push_back(std::move(client));
  ++idle[engine];
}

void EnginePool::Impl::serve(std::size_t engine, HttpClient& client) {
  while (std::optional<RequestQueue::Job> job = take(engine)) {
    RequestQueue::Attempt attempt = ask(engine, client, job->asks());
    const bool is_full = attempt.outcome == Outcome::kBusy;
    if (queue.settle(engine, *std::move(job), std::move(attempt))) {
      // A full engine answers at once, and its health is good: without a pause this would flood it with requests.
      if (is_full) queue.pause(kHealthInterval);
      look_after(engine, client);
    }
    const std::lock_guard lock(mutex);
    ++idle[engine];
  }
}

// Keeps one thread of each engine idle, so that no engine blocks others from a request that it does not take.
std::optional<RequestQueue::Job> EnginePool::Impl::take(std::size_t engine) {
  std::optional<RequestQueue::Job> job = queue.take(engine);
  const std::lock_guard lock(mutex);
  --idle[engine];
  if (!job || idle[engine] > 0) return job;
  try {
    add_thread(engine);
  } catch (const std::system_error& error) {  // this engine gets fewer requests at a time
    options.log(cat("no further thread could be started to ask engine ", urls[engine], ": ", error.what()));
  }
  return job;
}

RequestQueue::Attempt EnginePool::Impl::ask(std::size_t engine, HttpClient& client, const RolloutRequest& request) {
  RequestQueue::Attempt attempt{.url = find(engine), .answer = {.engine = engine, .began = Clock::now()}};
  const absl::StatusOr<HttpResponse> response =
      client.post_json(attempt.url + "/v1/completions", to_json(request, options.model), options.request_timeout);
  attempt.answer.ended = Clock::now();
  if (!response.ok()) {
    const bool may_be_back = options.url_of && absl::IsUnavailable(response.status());
    attempt.why = message_of(response.status());
    attempt.outcome = !client.was_sent() ? Outcome::kUnreached : may_be_back ? Outcome::kDied : Outcome::kLost;
    return attempt;
  }
  if (response->status == 200) {
    absl::StatusOr<std::vector<Rollout>> rollouts = read_rollouts(response->body);
    attempt.outcome = rollouts.ok() ? Outcome::kAnswered : Outcome::kRefused;
    if (rollouts.ok())
      attempt.answer.rollouts = *std::move(rollouts);
    else
      attempt.why = message_of(rollouts.status());
    return attempt;
  }
  const bool is_busy = response->status == 429 || response->status == 503;  // full, or no version yet
  attempt.why = cat("HTTP ", response->status, ": ", reason_in(*response));
  attempt.outcome = is_busy ? Outcome::kBusy : response->status >= 500 ? Outcome::kLost : Outcome::kRefused;
  return attempt;
}

// Probes the engine until /health says that it serves.
void EnginePool::Impl::look_after(std::size_t engine, HttpClient& client) {
  while (!queue.is_cancelled()) {
    const std::string url = find(engine);
    const absl::Status health = probe_health(url, client).status();
    const bool changed = queue.set_up(engine, health.ok());
    if (changed && !queue.is_cancelled())
      options.log(health.ok() ? cat("engine ", url, " is back")
                              : cat("engine ", url, " is down: ", message_of(health)));
    if (health.ok()) return;
    queue.pause(kHealthInterval);
  }
}

bool EnginePool::Impl::is_started_again() const {
  if (!options.url_of) return false;
  for (std::size_t engine = 0; engine < options.urls.size(); ++engine)
    if (options.url_of(engine).empty()) return true;
  return false;
}

// Returns the engine's current URL, or its last one while it is restarted.
std::string EnginePool::Impl::find(std::size_t engine) {
  const std::string now = options.url_of ? options.url_of(engine) : "";
  const std::lock_guard lock(mutex);
  if (!now.empty()) urls[engine] = now;
  return urls[engine];
}

// Whether to wait for an engine that does not answer.
bool EnginePool::Impl::may_come_back(Clock::time_point deadline) const {
  return options.url_of && !options.stopped() && Clock::now() < deadline;
}

absl::Status EnginePool::Impl::post_to_all(std::string_view path, std::string_view what) {
  absl::Status first;
  for (std::size_t engine = 0; engine < options.urls.size(); ++engine) first.Update(post(engine, path, what));
  return first;
}

absl::Status EnginePool::Impl::post(std::size_t engine, std::string_view path, std::string_view what) {
  HttpClient client;
  client.authorize(options.api_key);
  const Clock::time_point deadline = Clock::now() + on_clock(options.request_timeout);
  while (true) {
    const std::string url = find(engine);
    const absl::StatusOr<HttpResponse> response = client.post_json(cat(url, path), "{}", options.request_timeout);
    if (response.ok() && response->status == 200) return absl::OkStatus();
    if (response.ok() || !may_come_back(deadline))
      return unavailable(
          "engine ", url, " did not ", what, ": ",
          response.ok() ? cat("HTTP ", response->status, ": ", reason_in(*response)) : message_of(response.status()));
    queue.pause(kHealthInterval);
  }
}

}  // namespace bascule::ref
