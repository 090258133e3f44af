#include <bascule/trainer_ref/bench/engine/load.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::vector<std::int64_t>> random_prompts(const Load& load) {
  std::mt19937_64 random(load.seed);
  std::vector<std::vector<std::int64_t>> prompts(static_cast<std::size_t>(load.requests));
  for (auto& prompt : prompts)
    for (std::int64_t i = 0; i < load.prompt_tokens; ++i)
      prompt.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(load.vocabulary)));
  return prompts;
}

ref::CompletionRequest request_of(std::vector<std::vector<std::int64_t>> prompts, const Load& load) {
  ref::CompletionRequest request;
  request.prompts = std::move(prompts);
  request.max_tokens = load.generated_tokens;
  request.sampling.seed = load.seed;
  return request;
}

// The first error of several threads.
class FirstError {
 public:
  void note(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    first_.Update(status);
  }
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status first_;
};

// The largest time between two tokens of each sequence, counting tokens after `watch()`.
class Pauses final : public ref::TokenSink {
 public:
  explicit Pauses(std::int64_t sequences) : last_(static_cast<std::size_t>(sequences)) {}
  void put(std::size_t sequence) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (watching_ && last_[sequence] != Clock::time_point{})
      worst_ = std::max(worst_, std::chrono::duration<double>(now - last_[sequence]).count());
    last_[sequence] = now;
  }
  void put(ref::NewToken token) override { put(static_cast<std::size_t>(token.choice)); }
  void watch() {
    const std::lock_guard lock(mutex_);
    watching_ = true;
  }
  double worst() const {
    const std::lock_guard lock(mutex_);
    return worst_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Clock::time_point> last_;
  bool watching_ = false;
  double worst_ = 0;
};

}  // namespace

absl::StatusOr<double> time_requests(ref::Engine& engine, const Load& load) {
  FirstError error;
  std::latch ended(load.requests);
  const auto prompts = random_prompts(load);
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ref::CompletionRequest request = request_of({prompts[i]}, load);
    if (load.adapters > 0)
      request.adapter = static_cast<ref::AdapterId>(i % static_cast<std::size_t>(load.adapters) + 1);
    const auto taken = engine.submit(std::move(request), [&](const ref::Completion& completion) {
      error.note(completion.status);
      ended.count_down();
    });
    if (!taken.ok()) {
      error.note(taken.status());
      ended.count_down();
    }
  }
  ended.wait();
  const double seconds = seconds_since(begin);
  BASCULE_TRY(error.status());
  return seconds;
}

absl::StatusOr<double> time_http_requests(const std::string& url, const Load& load) {
  FirstError error;
  const auto prompts = random_prompts(load);
  std::vector<std::string> bodies;
  bodies.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i)
    bodies.push_back(nlohmann::json{
        {"prompt", prompts[i]},
        {"max_tokens", load.generated_tokens},
        {"ignore_eos", true},
        {"return_token_ids", true},
        {"seed",
         load.seed + i}}.dump());
  std::latch ready(load.requests + 1);
  std::vector<std::jthread> clients;
  clients.reserve(bodies.size());
  for (const std::string& body : bodies)
    clients.emplace_back([&] {
      ref::HttpClient client;
      error.note(client.get(url + "/health", absl::Minutes(1)).status());  // connects
      ready.arrive_and_wait();
      const auto answer = client.post_json(url + "/v1/completions", body, absl::Minutes(10));
      error.note(answer.status());
      if (answer.ok() && answer->status != 200)
        error.note(absl::InternalError(cat("the engine answers ", answer->status, ": ", answer->body)));
    });
  ready.arrive_and_wait();
  const Clock::time_point begin = Clock::now();
  clients.clear();
  const double seconds = seconds_since(begin);
  BASCULE_TRY(error.status());
  return seconds;
}

absl::StatusOr<double> worst_pause_beside_prompt(ref::Engine& engine, std::int64_t rows, std::int64_t prompt_tokens,
                                                 std::int64_t vocabulary) {
  FirstError error;
  const auto pauses = std::make_shared<Pauses>(rows);
  std::latch ended(2);
  const auto done = [&](const ref::Completion& completion) {
    error.note(completion.status);
    ended.count_down();
  };
  const auto submit = [&](ref::CompletionRequest request) {
    const absl::Status taken = engine.submit(std::move(request), done).status();
    error.note(taken);
    if (!taken.ok()) ended.count_down();
  };
  const auto request = [&](const Load& load) { return request_of(random_prompts(load), load); };
  ref::CompletionRequest short_ones = request({.requests = rows,
                                               .prompt_tokens = kPausedPromptTokens,
                                               .generated_tokens = kPausedTokens,
                                               .vocabulary = vocabulary,
                                               .seed = 77});
  short_ones.sink = pauses;
  submit(std::move(short_ones));
  const auto generated = [&] { return engine.stats().generated_tokens; };
  const std::uint64_t before = generated();
  while (generated() < before + static_cast<std::uint64_t>(64 * rows) && error.status().ok())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pauses->watch();
  submit(request({.requests = 1,
                  .prompt_tokens = prompt_tokens,
                  .generated_tokens = kBesideTokens,
                  .vocabulary = vocabulary,
                  .seed = 78}));
  ended.wait();
  BASCULE_TRY(error.status());
  return pauses->worst();
}

}  // namespace bascule::bench
