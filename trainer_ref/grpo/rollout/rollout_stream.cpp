#include <bascule/trainer_ref/grpo/rollout/rollout_stream.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

RolloutStream::RolloutStream(EnginePool& pool, const Schedule& schedule, RequestsOf requests_of)
    : pool_(pool), schedule_(schedule), thread_([this, requests_of = std::move(requests_of)] { run(requests_of); }) {}

RolloutStream::~RolloutStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  pool_.cancel();
}

void RolloutStream::published() {
  const std::lock_guard lock(mutex_);
  ++published_;
  changed_.notify_all();
}

RolloutStream::Answers RolloutStream::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !under_way_.empty(); });
  std::future<Answers> step = std::move(under_way_.front());
  under_way_.pop_front();
  lock.unlock();
  return step.get();  // bounded by the deadlines of generate()
}

void RolloutStream::run(const RequestsOf& requests_of) {
  for (std::int64_t step = schedule_.first_step; step <= schedule_.last_step; ++step) {
    const std::int64_t enough = std::max<std::int64_t>(1, schedule_.published_before(step) - schedule_.max_staleness);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || published_ >= enough; });
      if (stopping_) return;
    }
    pool_.wait_until_taken();
    std::vector<RolloutRequest> requests = requests_of(step);
    auto asked = pool_.ask(requests);
    std::future<Answers> answers = begin(std::move(requests), std::move(asked));
    const std::lock_guard lock(mutex_);
    under_way_.push_back(std::move(answers));
    changed_.notify_all();
  }
}

// Collects on a separate thread.
std::future<RolloutStream::Answers> RolloutStream::begin(std::vector<RolloutRequest> requests,
                                                         std::shared_ptr<RequestQueue::Call> asked) {
  try {
    return std::async(std::launch::async, [this, requests = std::move(requests), asked = std::move(asked)]() mutable {
      return collect(std::move(requests), asked);
    });
  } catch (const std::system_error& error) {
    std::promise<Answers> none;
    none.set_value(absl::ResourceExhaustedError(
        cat("no thread could be started to wait for a step's completions: ", error.what(),
            "; see the limits of this process (ulimit -u, ulimit -v, the control group's pids.max)")));
    return none.get_future();
  }
}

// Repeats requests until each has its completions, or a repetition adds none.
RolloutStream::Answers RolloutStream::collect(std::vector<RolloutRequest> requests,
                                              const std::shared_ptr<RequestQueue::Call>& asked) {
  BASCULE_ASSIGN(std::vector<Generation> answers, pool_.answers_to(asked));
  std::vector<int> missing;
  missing.reserve(requests.size());
  for (const RolloutRequest& request : requests) missing.push_back(request.completions);
  const auto count = [&](std::vector<Generation>& generations) {
    int sound = 0;
    for (Generation& generation : generations) {
      std::erase_if(generation.rollouts, [](const Rollout& rollout) { return rollout.finish_reason == "abort"; });
      missing[generation.request] -= static_cast<int>(generation.rollouts.size());
      sound += static_cast<int>(generation.rollouts.size());
    }
    return sound;
  };
  count(answers);
  for (std::uint64_t round = 1;; ++round) {
    std::vector<RolloutRequest> again;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (missing[i] <= 0) continue;
      places.push_back(i);
      again.push_back(requests[i]);
      again.back().completions = missing[i];
      again.back().seed = mix(requests[i].seed + round);  // the same seed would draw the same completions
    }
    if (again.empty()) break;
    absl::StatusOr<std::vector<Generation>> more = pool_.generate(std::move(again));
    if (absl::IsCancelled(more.status())) return more.status();
    if (!more.ok()) break;
    for (Generation& generation : *more) generation.request = places[generation.request];
    if (count(*more) == 0) break;
    std::move(more->begin(), more->end(), std::back_inserter(answers));
  }
  return Step{std::move(requests), std::move(answers)};
}

}  // namespace bascule::ref
