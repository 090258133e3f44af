// The engine's thread without a model: see simulation.h.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "simulation.h"
#include <bascule/trainer_ref/engine/schedule/runner.h>

namespace bascule::ref {

// A runner over the simulated cache; the test controls its weights. While the gate is closed, steps pass it one by one.
class SimulatedRunner final : public Runner {
 public:
  enum class Ahead { kNo, kYes };
  explicit SimulatedRunner(std::size_t blocks, Ahead ahead = Ahead::kNo) : ahead_(ahead), cache_(blocks) {}

  Served commit() override {
    EXPECT_TRUE(started_.empty()) << "a step still reads what was served";
    Served served;
    std::function<void()> acked;
    {
      const std::lock_guard lock(mutex_);
      served = served_;
      served.changed = std::exchange(changed_, false);
      committed_ = served;
      if (served.changed) acked = std::exchange(acked_, nullptr);
    }
    if (acked) acked();
    const std::lock_guard lock(mutex_);
    committed_adapters_ = adapters_;
    for (ServedAdapter& adapter : adapters_) adapter.served.changed = false;
    return served;
  }
  absl::Status set_adapter(AdapterId id, std::unique_ptr<AdapterWeights> /*weights*/) override {
    const std::lock_guard lock(mutex_);
    if (adapters_.size() == 2) return absl::ResourceExhaustedError("there is room for two");
    adapters_.push_back({.id = id});
    return absl::OkStatus();
  }
  void remove_adapter(AdapterId id) override {
    const std::lock_guard lock(mutex_);
    for (auto* const adapters : {&adapters_, &committed_adapters_})
      std::erase_if(*adapters, [id](const ServedAdapter& adapter) { return adapter.id == id; });
  }
  std::span<const ServedAdapter> adapters() const override { return committed_adapters_; }
  Served look() override {
    const std::lock_guard lock(mutex_);
    ++looks_;
    Served served = committed_;
    served.changed = false;
    served.pending =
        changed_ || std::ranges::any_of(adapters_, [](const ServedAdapter& adapter) { return adapter.served.changed; });
    if (!served_.ready) {
      served.ready = false;
      served.error = served_.error;
    }
    return served;
  }
  void start(const Step& step) override {
    EXPECT_LT(started_.size(), ahead_ == Ahead::kYes ? 2U : 1U);
    const std::lock_guard lock(mutex_);
    ran_ahead_ += started_.empty() ? 0 : 1;
    started_.push_back(compute(step));
  }
  absl::StatusOr<std::vector<RowOutput>> finish() override {
    std::unique_lock lock(mutex_);
    gate_.wait(lock, [this] { return open_; });
    if (allowed_ > 0 && --allowed_ == 0) open_ = false;
    absl::StatusOr<std::vector<RowOutput>> outputs = std::move(started_.front());
    started_.pop_front();
    return outputs;
  }
  bool runs_ahead() const override { return ahead_ == Ahead::kYes; }

  absl::Status sleep() override {
    const std::lock_guard lock(mutex_);
    asleep_ = true;
    return absl::OkStatus();
  }
  absl::Status wake_up() override {
    const std::lock_guard lock(mutex_);
    if (memory_lent_) return absl::UnavailableError("the memory is in use");
    asleep_ = false;
    return absl::OkStatus();
  }

  void serve(Version version) {
    const std::lock_guard lock(mutex_);
    served_.ready = true;
    served_.error = absl::OkStatus();
    served_.version = version;
    changed_ = true;
  }
  void serve_adapter(AdapterId id, Version version) {
    const std::lock_guard lock(mutex_);
    for (ServedAdapter& adapter : adapters_)
      if (adapter.id == id) adapter.served = {.ready = true, .changed = true, .epoch = 5, .version = version};
  }
  void poison_adapter(AdapterId id, absl::Status why) {
    const std::lock_guard lock(mutex_);
    for (ServedAdapter& adapter : adapters_)
      if (adapter.id == id) adapter.served = {.ready = false, .changed = true, .error = std::move(why)};
  }
  std::size_t adapters_held() {
    const std::lock_guard lock(mutex_);
    return adapters_.size();
  }
  // The pending version will not be served, like a single copy that was not written after all.
  void withdraw() {
    const std::lock_guard lock(mutex_);
    served_ = committed_;
    changed_ = false;
  }
  int ran_ahead() {  // steps started before their predecessors were finished
    const std::lock_guard lock(mutex_);
    return ran_ahead_;
  }
  int looks() {
    const std::lock_guard lock(mutex_);
    return looks_;
  }
  // The served version must no longer be used.
  void poison(absl::Status why) {
    const std::lock_guard lock(mutex_);
    served_.ready = false;
    served_.error = std::move(why);
  }
  // Like serve(), but calls `acked` in the middle of the commit that flips.
  void serve(Version version, std::function<void()> acked) {
    {
      const std::lock_guard lock(mutex_);
      acked_ = std::move(acked);
    }
    serve(version);
  }
  bool asleep() {
    const std::lock_guard lock(mutex_);
    return asleep_;
  }
  void lend_memory(bool lent) {
    const std::lock_guard lock(mutex_);
    memory_lent_ = lent;
  }
  void fail(bool failing) {
    const std::lock_guard lock(mutex_);
    failing_ = failing;
  }
  // Fails steps with a prompt that holds this token.
  void fail_on(std::int64_t token) {
    const std::lock_guard lock(mutex_);
    breaking_ = token;
  }
  // Fails steps that compute what follows this token, if a sequence has just generated it.
  void fail_behind(std::int64_t token) {
    const std::lock_guard lock(mutex_);
    breaking_behind_ = token;
  }
  // What this version of an adapter writes into the cache is no numbers, and neither are logits that depend on it.
  void spoil(Version version) {
    const std::lock_guard lock(mutex_);
    spoiling_ = version;
  }
  // Opens the gate for this many steps.
  void allow(int steps) {
    const std::lock_guard lock(mutex_);
    allowed_ = steps;
    open_ = true;
    gate_.notify_all();
  }
  void open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    allowed_ = 0;
    gate_.notify_all();
  }

 private:
  absl::StatusOr<std::vector<RowOutput>> compute(const Step& step) {
    EXPECT_FALSE(asleep_) << "there is no cache";
    if (!started_.empty() && !started_.back().ok()) return started_.back().status();
    if (failing_ || std::any_of(step.rows.begin(), step.rows.end(), [this](const Row& row) { return breaks(row); })) {
      cache_.clear();
      return absl::InternalError("the model broke");
    }
    if (std::ranges::any_of(step.rows, [this](const Row& row) { return spoils(row) && row.samples(); })) {
      cache_.clear();
      spoiled_.clear();
      return absl::DataLossError("no numbers");
    }
    return cache_.run(step);
  }
  // Whether the row reads what is no number. Notes what it writes.
  bool spoils(const Row& row) {
    const auto found = std::ranges::find(committed_adapters_, row.sequence->adapter, &ServedAdapter::id);
    const bool is_bad = found != committed_adapters_.end() && found->served.version == spoiling_;
    const auto place = [&](std::size_t i) {
      return std::pair(row.sequence->blocks.at(i / kBlockTokens), i % kBlockTokens);
    };
    for (std::size_t i = row.begin; i < row.end(); ++i)
      is_bad ? static_cast<void>(spoiled_.insert(place(i))) : static_cast<void>(spoiled_.erase(place(i)));
    for (std::size_t i = 0; i < row.end(); ++i)
      if (spoiled_.contains(place(i))) return true;
    return false;
  }
  bool breaks(const Row& row) const {
    const std::span<const std::int64_t> prompt = std::span(row.sequence->tokens).first(row.sequence->prompt_tokens);
    return std::find(prompt.begin(), prompt.end(), breaking_) != prompt.end() ||
           (row.draw() > 0 && cache_.last_token(row) == breaking_behind_);
  }

  const Ahead ahead_;
  std::deque<absl::StatusOr<std::vector<RowOutput>>> started_;  // the engine's thread alone
  std::mutex mutex_;
  std::condition_variable gate_;
  Served served_, committed_;
  std::vector<ServedAdapter> adapters_, committed_adapters_;
  std::function<void()> acked_;
  std::set<std::pair<BlockId, std::size_t>> spoiled_;  // places of the cache
  Version spoiling_ = 0;
  std::int64_t breaking_ = -1, breaking_behind_ = -1;
  int allowed_ = 0;  // 0: any number
  int looks_ = 0, ran_ahead_ = 0;
  bool changed_ = false, failing_ = false, open_ = true, asleep_ = false, memory_lent_ = false;
  SimulatedCache cache_;
};

}  // namespace bascule::ref
