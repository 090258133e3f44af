#include <bascule/trainer_ref/grpo/engine_pool.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/json.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kHealthTimeout = absl::Seconds(2);
constexpr std::chrono::milliseconds kHealthInterval{100};
constexpr std::chrono::milliseconds kStoppedInterval{200};

// One generate(). Threads that still wait for an engine keep it alive after its caller gave up.
struct Call {
  std::vector<RolloutRequest> requests;
  std::vector<Generation> answers;
  std::size_t open = 0;  // requests without an answer that may still get one
  const Clock::time_point began = Clock::now();
  std::string last_loss;  // why the last request was lost
};

struct Job {
  std::shared_ptr<Call> call;
  std::size_t request = 0;
  std::optional<std::size_t> lost_by;  // the engine that it goes back to only where no other is up
  bool was_lost = false;               // by an engine that may live: what it asks may be the reason
};

// What came of asking an engine.
enum class Outcome {
  kAnswered,
  kUnreached,  // nobody took the request: it is as good as new
  kDied,       // the connection to an engine broke that is started again if it died
  kLost,
  kBusy,
  kRefused
};

// {"error": {"message": "…"}}, /health's {"state": "…", "error": "…"}, or the body as it is.
std::string words_of(const HttpResponse& response) {
  const absl::StatusOr<nlohmann::json> body = parse_json(response.body, "the answer");
  const auto text = [](const nlohmann::json& object, const char* key) -> std::optional<std::string> {
    if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return std::nullopt;
    return object[key].get<std::string>();
  };
  if (body.ok()) {
    const std::optional<std::string> state = text(*body, "state"), error = text(*body, "error");
    if (state) return cat(*state, error ? cat(", ", *error) : "");
    if (body->is_object() && body->contains("error"))
      if (const std::optional<std::string> message = text((*body)["error"], "message")) return *message;
  }
  return response.body.substr(0, 200);
}

// What an engine that serves says of itself.
struct Health {
  bool attached = false;
  std::uint64_t epoch = 0;
  std::string worker;
};

absl::StatusOr<Health> ask_health(const std::string& url, HttpClient& client) {
  const absl::StatusOr<HttpResponse> response = client.get(url + "/health", kHealthTimeout);
  if (!response.ok()) return response.status();
  if (response->status != 200) return unavailable("HTTP ", response->status, ": ", words_of(*response));
  Health health;
  const absl::StatusOr<nlohmann::json> body = parse_json(response->body, "the answer");
  if (!body.ok() || !body->is_object()) return health;
  const auto value = [&body](const char* key) { return body->value(key, nlohmann::json()); };
  health.attached = value("attached") == true;
  if (value("epoch").is_number_unsigned()) health.epoch = value("epoch").get<std::uint64_t>();
  if (value("worker").is_string()) health.worker = value("worker").get<std::string>();
  return health;
}

}  // namespace

struct EnginePool::Impl {
  EnginePoolOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> urls;  // by engine, the last that was known
  std::list<Job> queue;
  Clock::time_point last_answer;  // to any call: what is queued before a call's requests must not cost it its patience
  bool cancelled = false;
  std::vector<bool> down;                            // by engine
  std::vector<std::unique_ptr<HttpClient>> clients;  // one a thread
  std::vector<std::jthread> threads;

  void serve(std::size_t engine, HttpClient& client);
  std::optional<Job> take(std::size_t engine);
  bool another_is_up(std::size_t engine) const;
  bool is_started_again() const;
  Outcome ask(std::size_t engine, HttpClient& client, const Job& job, std::string& why, Generation& answer);
  void settle(std::size_t engine, Job job, Outcome outcome, const std::string& why, Generation answer);
  void pause();
  void wait_until_up(std::size_t engine, HttpClient& client);
  absl::Status tell_all(std::string_view path, std::string_view what);
  absl::Status tell(std::size_t engine, std::string_view path, std::string_view what);
  bool may_come_back(Clock::time_point deadline) const;
  std::string find(std::size_t engine);
};

EnginePool::EnginePool(EnginePoolOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->urls = impl_->options.urls;
  const std::size_t engines = impl_->urls.size();
  impl_->down.resize(engines);
  for (std::size_t engine = 0; engine < engines; ++engine)
    for (int i = 0; i < impl_->options.requests_per_engine; ++i) {
      impl_->clients.push_back(std::make_unique<HttpClient>());
      impl_->clients.back()->authorize(impl_->options.api_key);
      impl_->threads.emplace_back(
          [impl = impl_.get(), engine, client = impl_->clients.back().get()] { impl->serve(engine, *client); });
    }
}

EnginePool::~EnginePool() {
  cancel();
  impl_->threads.clear();  // joins
}

void EnginePool::cancel() {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled = true;
  for (const std::unique_ptr<HttpClient>& client : impl_->clients) client->cancel();
  impl_->changed.notify_all();
}

std::vector<std::string> EnginePool::urls() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->urls;
}

absl::Status EnginePool::wait_until_serving(std::uint64_t epoch, absl::Duration timeout) {
  const Clock::time_point deadline = Clock::now() + absl::ToChronoNanoseconds(timeout);
  HttpClient client;
  std::map<std::string, std::string> urls;  // by worker
  for (std::size_t engine = 0; engine < impl_->options.urls.size(); ++engine)
    while (true) {
      const std::string url = impl_->find(engine);
      const absl::StatusOr<Health> health = ask_health(url, client);
      if (health.ok() && health->attached && health->epoch != epoch)
        return failed_precondition("engine ", url, " is connected to another trainer: it serves epoch ", health->epoch,
                                   ", and this run's is ", epoch, "; start it with the --sync of this run");
      if (health.ok() && health->attached) {
        const auto [other, is_new] = urls.try_emplace(health->worker, url);
        if (is_new) break;
        return failed_precondition("engines ", other->second, " and ", url, " are one, worker ", health->worker,
                                   "; give each once in --engines");
      }
      if (impl_->options.stopped()) return absl::OkStatus();
      std::unique_lock lock(impl_->mutex);
      if (impl_->changed.wait_for(lock, kHealthInterval, [&] { return impl_->cancelled; }))
        return absl::CancelledError("cancelled");
      if (Clock::now() < deadline) continue;
      if (!health.ok())
        return deadline_exceeded("engine ", url, " serves no version after ", absl::FormatDuration(timeout), ": ",
                                 message_of(health.status()));
      return deadline_exceeded("engine ", url, " has joined no sender after ", absl::FormatDuration(timeout),
                               "; start it with the --sync of this run");
    }
  return absl::OkStatus();
}

absl::StatusOr<EngineLimits> EnginePool::limits() {
  EngineLimits limits{.max_model_len = std::numeric_limits<std::int64_t>::max(),
                      .max_completions = std::numeric_limits<std::int64_t>::max()};
  HttpClient client;
  client.authorize(impl_->options.api_key);
  const Clock::time_point deadline = Clock::now() + absl::ToChronoNanoseconds(impl_->options.request_timeout);
  for (std::size_t engine = 0; engine < impl_->options.urls.size(); ++engine) {
    std::string url = impl_->find(engine);
    absl::StatusOr<HttpResponse> response = client.get(url + "/v1/models", kHealthTimeout);
    while (!response.ok() && impl_->may_come_back(deadline)) {
      impl_->pause();
      url = impl_->find(engine);
      response = client.get(url + "/v1/models", kHealthTimeout);
    }
    BASCULE_TRY(annotate(response.status(), cat("engine ", url)));
    if (response->status == 401)
      return unavailable("engine ", url, " asks for a key: ", words_of(*response),
                         "; give the engines' key to this program, too, as BASCULE_API_KEY");
    const absl::StatusOr<nlohmann::json> body = parse_json(response->body, "the answer");
    const auto limit = [&body](const char* key) -> std::int64_t {
      const nlohmann::json::json_pointer place(cat("/data/0/", key));
      return body.ok() && body->contains(place) && body->at(place).is_number_unsigned()
                 ? body->at(place).get<std::int64_t>()
                 : 0;
    };
    const std::int64_t length = limit("max_model_len"), completions = limit("max_completions");
    if (length <= 0 || completions <= 0)
      return unavailable("engine ", url,
                         ": expected max_model_len and max_completions of a bascule-engine at /v1/models, ",
                         "found HTTP ", response->status, ": ", words_of(*response));
    limits.max_model_len = std::min(limits.max_model_len, length);
    limits.max_completions = std::min(limits.max_completions, completions);
  }
  return limits;
}

absl::Status EnginePool::sleep() { return impl_->tell_all("/sleep", "go to sleep"); }
absl::Status EnginePool::wake_up() { return impl_->tell_all("/wake_up", "wake up"); }

absl::StatusOr<std::vector<Generation>> EnginePool::generate(std::vector<RolloutRequest> requests) {
  const auto call = std::make_shared<Call>();
  call->requests = std::move(requests);
  call->answers.resize(call->requests.size());
  call->open = call->requests.size();
  for (std::size_t i = 0; i < call->answers.size(); ++i) call->answers[i].request = i;
  const auto patience = absl::ToChronoNanoseconds(2 * impl_->options.request_timeout);

  std::unique_lock lock(impl_->mutex);
  for (std::size_t i = 0; i < call->requests.size(); ++i)
    impl_->queue.push_back({.call = call, .request = i, .lost_by = std::nullopt});
  impl_->changed.notify_all();
  const auto settled = [&] { return call->open == 0 || impl_->cancelled; };
  Clock::time_point hope = call->began;  // when an engine was last known to be on its way back
  const auto deadline = [&] { return std::max(hope, impl_->last_answer) + patience; };
  const std::function<bool()>& stopped = impl_->options.stopped;
  for (; !settled() && !stopped() && Clock::now() < deadline(); hope = impl_->is_started_again() ? Clock::now() : hope)
    impl_->changed.wait_until(lock, std::min<Clock::time_point>(deadline(), Clock::now() + kStoppedInterval), settled);

  impl_->queue.remove_if([&](const Job& job) { return job.call == call; });
  const std::size_t unanswered = std::exchange(call->open, 0);  // threads that still ask for it see that it is over
  if (impl_->cancelled || (unanswered > 0 && stopped())) return absl::CancelledError("cancelled");
  if (unanswered > 0) impl_->options.log(cat(unanswered, " requests were given up: no engine answered in time"));
  std::vector<Generation> answers = std::move(call->answers);
  for (const Generation& answer : answers)
    if (!answer.rollouts.empty()) return answers;
  if (answers.empty()) return answers;
  return unavailable("none of ", answers.size(), " requests was answered by ", impl_->options.urls.size(), " engines",
                     call->last_loss.empty() ? "" : cat("; the last: ", call->last_loss));
}

// The first job that this engine may take. None: the pool stops.
std::optional<Job> EnginePool::Impl::take(std::size_t engine) {
  std::unique_lock lock(mutex);
  while (!cancelled) {
    for (auto job = queue.begin(); job != queue.end(); ++job) {
      if (job->lost_by == engine && another_is_up(engine)) continue;
      Job taken = std::move(*job);
      queue.erase(job);
      return taken;
    }
    changed.wait(lock);
  }
  return std::nullopt;
}

// Under the mutex.
bool EnginePool::Impl::another_is_up(std::size_t engine) const {
  for (std::size_t other = 0; other < down.size(); ++other)
    if (other != engine && !down[other]) return true;
  return false;
}

bool EnginePool::Impl::is_started_again() const {
  if (!options.url_of) return false;
  for (std::size_t engine = 0; engine < options.urls.size(); ++engine)
    if (options.url_of(engine).empty()) return true;
  return false;
}

void EnginePool::Impl::serve(std::size_t engine, HttpClient& client) {
  while (std::optional<Job> job = take(engine)) {
    std::string why;
    Generation answer{.request = 0, .rollouts = {}, .engine = engine, .began = Clock::now(), .ended = {}};
    const Outcome outcome = ask(engine, client, *job, why, answer);
    answer.ended = Clock::now();
    settle(engine, *std::move(job), outcome, why, std::move(answer));
    if (outcome == Outcome::kBusy) pause();
    if (outcome != Outcome::kAnswered && outcome != Outcome::kRefused) wait_until_up(engine, client);
  }
}

Outcome EnginePool::Impl::ask(std::size_t engine, HttpClient& client, const Job& job, std::string& why,
                              Generation& answer) {
  const absl::StatusOr<HttpResponse> response = client.post_json(
      find(engine) + "/v1/completions", to_json(job.call->requests[job.request]), options.request_timeout);
  if (!response.ok()) {
    why = message_of(response.status());
    if (!client.was_sent()) return Outcome::kUnreached;
    return options.url_of && absl::IsUnavailable(response.status()) ? Outcome::kDied : Outcome::kLost;
  }
  if (response->status == 200) {
    absl::StatusOr<std::vector<Rollout>> rollouts = read_rollouts(response->body);
    if (rollouts.ok()) {
      answer.rollouts = *std::move(rollouts);
      return Outcome::kAnswered;
    }
    why = message_of(rollouts.status());
    return Outcome::kRefused;
  }
  why = cat("HTTP ", response->status, ": ", words_of(*response));
  if (response->status == 429 || response->status == 503) return Outcome::kBusy;  // full, or no version yet
  return response->status >= 500 ? Outcome::kLost : Outcome::kRefused;
}

void EnginePool::Impl::settle(std::size_t engine, Job job, Outcome outcome, const std::string& why, Generation answer) {
  const std::lock_guard lock(mutex);
  Call& call = *job.call;
  if (outcome == Outcome::kAnswered) last_answer = Clock::now();
  if (cancelled || call.open == 0) return;  // no caller waits for it any more
  switch (outcome) {
    case Outcome::kAnswered:
      answer.request = job.request;
      call.answers[job.request] = std::move(answer);
      --call.open;
      break;
    case Outcome::kBusy: queue.push_front(std::move(job)); break;
    case Outcome::kRefused:
      call.last_loss = cat(urls[engine], ": ", why);
      options.log(cat("engine ", urls[engine], " refused a request, which is lost: ", why));
      --call.open;
      break;
    case Outcome::kUnreached:
    case Outcome::kDied:
      call.last_loss = cat(urls[engine], ": ", why);
      if (outcome == Outcome::kDied) job.lost_by = engine;
      queue.push_front(std::move(job));
      break;
    case Outcome::kLost:
      call.last_loss = cat(urls[engine], ": ", why);
      if (std::exchange(job.was_lost, true)) {
        options.log(cat("a request was lost twice, last with ", call.last_loss));
        --call.open;
        break;
      }
      job.lost_by = engine;
      queue.push_front(std::move(job));
      break;
  }
  changed.notify_all();
}

// An engine that is full says so at once, and that it is well: to ask on and on would only keep it from its work.
void EnginePool::Impl::pause() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kHealthInterval, [&] { return cancelled; });
}

void EnginePool::Impl::wait_until_up(std::size_t engine, HttpClient& client) {
  while (true) {
    const std::string url = find(engine);
    const absl::Status status = ask_health(url, client).status();
    std::unique_lock lock(mutex);
    if (cancelled) return;
    if (status.ok()) {
      if (down[engine]) options.log(cat("engine ", url, " is back"));
      down[engine] = false;
      changed.notify_all();
      return;
    }
    if (!down[engine]) options.log(cat("engine ", url, " is down: ", message_of(status)));
    if (!down[engine]) changed.notify_all();  // what it lost may have to go back to another
    down[engine] = true;
    changed.wait_for(lock, kHealthInterval, [&] { return cancelled; });
  }
}

// Where it is now; where it was, as long as it is nowhere.
std::string EnginePool::Impl::find(std::size_t engine) {
  const std::string now = options.url_of ? options.url_of(engine) : "";
  const std::lock_guard lock(mutex);
  if (!now.empty()) urls[engine] = now;
  return urls[engine];
}

// An engine that does not answer.
bool EnginePool::Impl::may_come_back(Clock::time_point deadline) const {
  return options.url_of && !options.stopped() && Clock::now() < deadline;
}

absl::Status EnginePool::Impl::tell_all(std::string_view path, std::string_view what) {
  absl::Status first;
  for (std::size_t engine = 0; engine < options.urls.size(); ++engine) first.Update(tell(engine, path, what));
  return first;
}

absl::Status EnginePool::Impl::tell(std::size_t engine, std::string_view path, std::string_view what) {
  HttpClient client;
  client.authorize(options.api_key);
  const Clock::time_point deadline = Clock::now() + absl::ToChronoNanoseconds(options.request_timeout);
  while (true) {
    const std::string url = find(engine);
    const absl::StatusOr<HttpResponse> response = client.post_json(cat(url, path), "{}", options.request_timeout);
    if (response.ok() && response->status == 200) return absl::OkStatus();
    if (response.ok() || !may_come_back(deadline))
      return unavailable(
          "engine ", url, " did not ", what, ": ",
          response.ok() ? cat("HTTP ", response->status, ": ", words_of(*response)) : message_of(response.status()));
    pause();
  }
}

std::string what_engines_say(const std::vector<std::string>& urls) {
  std::string text;
  HttpClient client;
  for (const std::string& url : urls) {
    const absl::Status health = ask_health(url, client).status();
    text +=
        cat(text.empty() ? "" : "; ", "engine ", url, " says ", health.ok() ? "that it serves" : message_of(health));
  }
  return text;
}

}  // namespace bascule::ref
