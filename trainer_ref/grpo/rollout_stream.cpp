#include <bascule/trainer_ref/grpo/rollout_stream.h>

#include <algorithm>
#include <utility>

namespace bascule::ref {

RolloutStream::RolloutStream(EnginePool& pool, const Schedule& schedule, Plan plan)
    : pool_(pool), schedule_(schedule), thread_([this, plan = std::move(plan)] { run(plan); }) {}

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

absl::StatusOr<std::vector<Generation>> RolloutStream::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty(); });  // generate() ends by its own deadlines
  absl::StatusOr<std::vector<Generation>> generations = std::move(ready_.front());
  ready_.pop_front();
  return generations;
}

void RolloutStream::run(const Plan& plan) {
  for (std::int64_t step = schedule_.first_step; step <= schedule_.last_step; ++step) {
    const std::int64_t enough = std::max<std::int64_t>(1, schedule_.published_before(step) - schedule_.max_staleness);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || published_ >= enough; });
      if (stopping_) return;
    }
    absl::StatusOr<std::vector<Generation>> generations = pool_.generate(plan(step));
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(generations));
    changed_.notify_all();
  }
}

}  // namespace bascule::ref
