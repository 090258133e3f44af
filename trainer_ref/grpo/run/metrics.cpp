#include <bascule/trainer_ref/grpo/run/metrics.h>

#include <cmath>
#include <cstddef>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

nlohmann::json number(double value) {  // JSON has no NaN
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json by_name(const std::vector<std::pair<std::string, double>>& means) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, mean] : means) object[name] = number(mean);
  return object;
}

nlohmann::json send_json(const SendReport& report) {
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerReport& worker : report.workers) {
    workers.push_back({{"worker", worker.worker},
                       {"state", to_string(worker.state)},
                       {"seconds", worker.seconds},
                       {"stall_seconds", worker.stall_seconds}});
    if (!worker.error.ok()) workers.back()["error"] = message_of(worker.error);
  }
  const StageSeconds& seconds = report.seconds;
  return {{"bytes", report.bytes},
          {"seconds",
           {{"wait", seconds.wait},
            {"pack", seconds.pack},
            {"deliver", seconds.deliver},
            {"prepare", seconds.prepare},
            {"commit", seconds.commit}}},
          {"workers", std::move(workers)},
          {"memory", report.memory}};
}

nlohmann::json use_json(const RolloutFigures& rollouts) {
  nlohmann::json engines = nlohmann::json::array();
  for (const auto& [engine, use] : rollouts.use)
    engines.push_back({{"engine", engine},
                       {"tokens_per_second", number(static_cast<double>(use.tokens) / use.busy_seconds)},
                       {"busy_seconds", use.busy_seconds},
                       {"idle_seconds", use.idle_seconds}});
  return engines;
}

nlohmann::json spans_json(const RolloutFigures& rollouts) {
  nlohmann::json engines = nlohmann::json::array();
  for (const EngineSpan& span : rollouts.spans)
    engines.push_back({{"engine", span.engine},
                       {"version", span.version},
                       {"begin", span.begin_seconds},
                       {"end", span.end_seconds},
                       {"tokens", span.tokens}});
  return engines;
}

}  // namespace

double StepMetrics::lag_mean() const {
  double sum = 0, completions = 0;
  for (std::size_t lag = 0; lag < rollouts.lags.size(); ++lag) {
    sum += static_cast<double>(lag * rollouts.lags[lag]);
    completions += static_cast<double>(rollouts.lags[lag]);
  }
  return sum / completions;
}

double StepMetrics::idle_seconds() const {
  double seconds = 0;
  for (const auto& [engine, use] : rollouts.use) seconds += use.idle_seconds;
  return seconds;
}

nlohmann::json to_json(const StepMetrics& metrics) {
  const RolloutFigures& rollouts = metrics.rollouts;
  const UpdateStatistics& update = metrics.update;
  nlohmann::json line{
      {"step", metrics.step},
      {"version", metrics.version},
      {"reward_mean", number(metrics.reward_mean)},
      {"reward_std", number(metrics.reward_std)},
      {"unscored", metrics.unscored},
      {"groups", metrics.groups},
      {"flat_groups", metrics.flat_groups},
      {"replaced_groups", metrics.replaced_groups},
      {"loss", number(update.loss)},
      {"kl", number(update.kl)},
      {"entropy", number(update.entropy)},
      {"clip_fraction", number(update.clip_fraction)},
      {"importance", {{"mean", number(update.importance_mean)}, {"capped", number(update.importance_capped)}}},
      {"masked_fraction", number(update.masked)},
      {"grad_norm", number(update.grad_norm)},
      {"learning_rate", number(update.learning_rate)},
      {"updates", update.updates},
      {"skipped_updates", update.skipped},
      {"trained_tokens", update.tokens},
      {"completion_tokens_mean", number(metrics.completion_tokens_mean)},
      {"cut_fraction", number(metrics.cut)},
      {"staleness_mean", number(rollouts.staleness_mean)},
      {"lag", {{"mean", number(metrics.lag_mean())}, {"completions", rollouts.lags}}},
      {"dropped", rollouts.dropped},
      {"tail_seconds", number(rollouts.tail_seconds)},
      {"idle_engine_seconds", metrics.idle_seconds()},
      {"engines", spans_json(rollouts)},
      {"engine_use", use_json(rollouts)},
      {"seconds",
       {{"rollout", number(metrics.seconds.rollout)},
        {"score", number(metrics.seconds.score)},
        {"train", number(metrics.seconds.train)},
        {"send", number(metrics.seconds.send)}}},
      {"elapsed_seconds", metrics.elapsed_seconds}};
  if (!rollouts.lags.empty()) line["lag"]["max"] = rollouts.lags.size() - 1;
  if (metrics.send) line["send"] = send_json(*metrics.send);
  if (!metrics.rewards.empty()) line["rewards"] = by_name(metrics.rewards);
  if (!metrics.eval_rewards.empty()) line["eval_rewards"] = by_name(metrics.eval_rewards);
  if (metrics.eval_reward) line["eval_reward"] = number(*metrics.eval_reward);
  if (metrics.eval_greedy) line["eval_greedy"] = number(*metrics.eval_greedy);
  return line;
}

}  // namespace bascule::ref
