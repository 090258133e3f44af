#include <bascule/trainer_ref/grpo/run/progress.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kSteps = 20;

template <typename... Values>
std::string print(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string mean(double reward) { return std::isfinite(reward) ? print("%.3f", reward) : "none"; }

}  // namespace

void Pace::step_ended(double elapsed_seconds) {
  ends_.push_back(elapsed_seconds);
  if (ends_.size() > kSteps + 1) ends_.pop_front();
}

double Pace::seconds_left(std::int64_t steps_left) const {
  if (ends_.size() < 2) return kNoNumber;
  return (ends_.back() - ends_.front()) / static_cast<double>(ends_.size() - 1) * static_cast<double>(steps_left);
}

std::string precise(double seconds) {
  if (seconds >= 1) return print("%.1f s", seconds);
  return print(seconds >= 1e-3 ? "%.0f ms" : "%.2f ms", seconds * 1e3);
}

std::string with_commas(double value) {
  std::string digits = print("%.0f", value);
  for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string for_people(double seconds) {
  if (seconds < 100) return print("%.0f s", seconds);
  const auto minutes = std::llround(seconds / 60);
  return minutes < 100 ? cat(minutes, " min") : cat(minutes / 60, " h ", minutes % 60, " min");
}

std::string progress_line(const StepMetrics& metrics, std::int64_t last_step, double seconds_left) {
  const UpdateStatistics& update = metrics.update;
  std::string line = print("step %lld/%lld  v%llu", static_cast<long long>(metrics.step),
                           static_cast<long long>(last_step), static_cast<unsigned long long>(metrics.version));
  if (metrics.step > 0) {
    line += cat("  reward ", mean(metrics.reward_mean));
    if (update.tokens > 0) line += print("  loss %+.4f  grad %.3f", update.loss, update.grad_norm);
    if (std::isfinite(update.learning_rate)) line += print("  lr %.2g", update.learning_rate);
    if (std::isfinite(metrics.rollouts.staleness_mean)) line += print("  stale %.2f", metrics.rollouts.staleness_mean);
    line += print("  roll %.2f s  train %.2f s  send %.1f ms", metrics.seconds.rollout, metrics.seconds.train,
                  metrics.seconds.send * 1e3);
  }
  if (std::isfinite(update.kl)) line += print("  kl %.4f", update.kl);
  if (std::isfinite(update.entropy)) line += print("  entropy %.3f", update.entropy);
  if (update.importance_capped > 0) line += print("  capped %.1f %%", update.importance_capped * 100);
  if (update.masked > 0) line += print("  masked %.1f %%", update.masked * 100);
  if (metrics.cut > 0) line += print("  cut off %.1f %%", metrics.cut * 100);
  if (metrics.unscored > 0) line += print("  unscored %lld", static_cast<long long>(metrics.unscored));
  if (metrics.flat_groups > 0)
    line +=
        print("  flat %lld/%lld", static_cast<long long>(metrics.flat_groups), static_cast<long long>(metrics.groups));
  if (metrics.replaced_groups > 0) line += print("  replaced %lld", static_cast<long long>(metrics.replaced_groups));
  if (metrics.rollouts.dropped > 0) line += print("  dropped %lld", static_cast<long long>(metrics.rollouts.dropped));
  if (update.skipped > 0)
    line += print("  skipped %lld updates: loss or gradient not finite", static_cast<long long>(update.skipped));
  if (seconds_left > 0) line += cat("  left ", for_people(seconds_left));
  if (metrics.eval_reward && metrics.eval_greedy)
    line += cat("  |  held out: ", mean(*metrics.eval_reward), " sampled, ", mean(*metrics.eval_greedy), " greedy");
  return line;
}

std::string first_step_line(const StepMetrics& metrics, std::int64_t last_step, double seconds_left) {
  const std::array<std::pair<const char*, double>, 4> parts{{{"rollout", metrics.seconds.rollout},
                                                             {"score", metrics.seconds.score},
                                                             {"train", metrics.seconds.train},
                                                             {"send", metrics.seconds.send}}};
  double whole = 0;
  for (const auto& [name, seconds] : parts) whole += seconds;
  const auto slowest =
      std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string line = cat("step ", metrics.step, " took ", precise(whole), ", most of it ", slowest->first,
                         print(" (%.0f %%)", slowest->second / whole * 100), ": ");
  for (const auto& [name, seconds] : parts)
    line += cat(name, " ", precise(seconds), name == parts.back().first ? "" : ", ");
  double generated = 0;  // per second, by all engines together, while they had work
  for (const auto& [engine, use] : metrics.rollouts.use)
    if (use.busy_seconds > 0) generated += static_cast<double>(use.tokens) / use.busy_seconds;
  const double trained = static_cast<double>(metrics.update.tokens) / metrics.seconds.train;
  line += cat("; ", generated > 0 ? cat(with_commas(generated), " tokens per second from the engines, ") : "",
              with_commas(trained), generated > 0 ? "" : " tokens per second", " through the update");
  const std::int64_t left = last_step - metrics.step;
  if (left > 0)
    line += cat("; ", left, left == 1 ? " step more takes" : " steps more take", " about ", for_people(seconds_left));
  return line;
}

std::string supervised_line(std::int64_t step, std::int64_t last_step, double loss, double tokens_per_second,
                            double seconds_left) {
  std::string line = cat("step ", step, "/", last_step, print("  loss %.4f  ", loss), with_commas(tokens_per_second),
                         " tokens per second");
  if (seconds_left > 0) line += cat("  left ", for_people(seconds_left));
  return line;
}

std::function<void(std::size_t, std::size_t)> progress_logger(std::function<void(std::string_view)> log) {
  using Clock = std::chrono::steady_clock;
  return [log = std::move(log), last = Clock::time_point()](std::size_t done, std::size_t of) mutable {
    constexpr std::chrono::minutes kInterval{1};
    if (done == 1) last = Clock::now();
    if (done == of || Clock::now() - last < kInterval) return;
    last = Clock::now();
    log(cat("the update has done ", done, " of ", of, " micro-batches"));
  };
}

}  // namespace bascule::ref
