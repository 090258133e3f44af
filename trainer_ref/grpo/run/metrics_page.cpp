#include <bascule/trainer_ref/grpo/run/metrics_page.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include <bascule/trainer_ref/http/exposition.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::serve(std::string_view address) {
  std::unique_ptr<MetricsPage> page(new MetricsPage());
  PageServer::Pages pages{{"/metrics",
                           [page = page.get()] {
                             return PageServer::Page{.body = page->metrics_text(),
                                                     .type = std::string(kExpositionType)};
                           }},
                          {"/health", [page = page.get()] { return PageServer::Page{.body = page->health_json()}; }}};
  BASCULE_ASSIGN(page->server_, PageServer::listen("metrics", address, "bascule-train", std::move(pages)));
  return page;
}

void MetricsPage::begin(std::int64_t step, std::int64_t last_step, double elapsed_seconds, const SendReport& sent) {
  const std::lock_guard lock(mutex_);
  began_ = true;
  newest_ = {.step = step, .version = sent.version, .elapsed_seconds = elapsed_seconds};
  last_step_ = last_step;
  count(sent);
  note_time();
}

void MetricsPage::show(const StepMetrics& metrics, std::int64_t last_step, double seconds_left) {
  const std::lock_guard lock(mutex_);
  began_ = true;
  if (metrics.step > 0) ++steps_;
  newest_ = metrics;
  if (metrics.eval_reward) evaluated_ = {metrics.eval_reward, metrics.eval_greedy, metrics.eval_rewards};
  last_step_ = last_step;
  seconds_left_ = seconds_left;
  for (const auto& [engine, use] : metrics.rollouts.use) use_[engine] += use;
  dropped_ += metrics.rollouts.dropped;
  skipped_ += metrics.update.skipped;
  trained_tokens_ += metrics.update.tokens;
  if (metrics.send) count(*metrics.send);
  note_time();
}

void MetricsPage::note_time() {
  step_ended_ = std::chrono::steady_clock::now();
  step_ended_at_ = std::chrono::system_clock::now();
}

void MetricsPage::count(const SendReport& sent) {
  if (std::exchange(counted_version_, sent.version) == sent.version) return;
  send_seconds_ += sent.seconds.total();
  sent_bytes_ += sent.bytes;
}

std::string MetricsPage::health_json() const {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double, std::milli> since_step = std::chrono::steady_clock::now() - step_ended_;
  return nlohmann::json{{"state", began_ ? "training" : "starting"},
                        {"step", newest_.step},
                        {"steps", last_step_},
                        {"seconds_since_step", std::floor(since_step.count()) / 1000}}
      .dump();
}

std::string MetricsPage::metrics_text() const {
  const std::lock_guard lock(mutex_);
  const StepMetrics& line = newest_;
  const UpdateStatistics& update = line.update;
  Exposition page("bascule_train_");
  page.gauge("step", "The last step that was trained.", line.step);
  page.gauge("last_step", "The step that ends the run.", last_step_);
  page.gauge("last_step_timestamp_seconds", "When the last step ended; before that, when the run began.",
             std::chrono::duration<double>(step_ended_at_.time_since_epoch()).count());
  page.gauge("version", "Version of the weights that the engines serve.", line.version);
  page.gauge("elapsed_seconds", "Since the run began, at the end of the last step.", line.elapsed_seconds);
  page.gauge("left_seconds", "Estimate of the run's remaining time.", seconds_left_);
  page.gauge("reward_mean", "Mean reward of the step's scored completions, less --overlong-penalty.", line.reward_mean);
  page.gauge("reward_deviation", "Its standard deviation.", line.reward_std);
  page.gauge("unscored_completions", "Completions of the step to which no reward applies.", line.unscored);
  page.family("reward", "gauge", "Mean of each reward, without its weight.");
  for (const auto& [name, mean] : line.rewards) page.sample({{"name", name}}, mean);
  page.family("eval_reward", "gauge", "Mean reward on held-out problems, at the last step that was evaluated.");
  if (evaluated_.reward) page.sample({{"completions", "sampled"}}, *evaluated_.reward);
  if (evaluated_.greedy) page.sample({{"completions", "greedy"}}, *evaluated_.greedy);
  page.family("eval_named_reward", "gauge", "Mean of each reward of the sampled ones, without its weight.");
  for (const auto& [name, mean] : evaluated_.rewards) page.sample({{"name", name}}, mean);
  page.gauge("groups", "The step's first problems that have completions.", line.groups);
  page.gauge("flat_groups", "Groups whose scored completions all have the same reward, before --overlong-penalty.",
             line.flat_groups);
  page.gauge("replaced_groups", "Groups of further problems in place of flat or lost ones (--dynamic-sampling).",
             line.replaced_groups);
  page.gauge("completion_tokens_mean", "Mean length of a completion.", line.completion_tokens_mean);
  page.gauge("cut_ratio", "Share of completions that --max-tokens ended.", line.cut);
  page.gauge("loss", "Loss of the step's update.", update.loss);
  page.gauge("kl_nats", "Divergence from the reference, per token.", update.kl);
  page.gauge("entropy_nats", "Entropy of the policy, per token.", update.entropy);
  page.gauge("clipped_ratio", "Share of tokens whose objective is clipped.", update.clip_fraction);
  page.gauge("importance_weight_mean", "Mean importance weight of a token, capped.", update.importance_mean);
  page.gauge("importance_capped_ratio", "Share of tokens whose weight is capped.", update.importance_capped);
  page.gauge("masked_ratio", "Share of completions that --off-policy-mask masks.", update.masked);
  page.gauge("gradient_norm", "Norm of the gradient before clipping.", update.grad_norm);
  page.gauge("learning_rate", "Learning rate of the last optimizer step that changed the weights.",
             update.learning_rate);
  page.gauge("staleness_versions_mean", "Versions between a token and its use.", line.rollouts.staleness_mean);
  page.gauge("lag_versions_mean", "Versions between a completion's oldest token and its use.", line.lag_mean());
  page.family("step_seconds", "gauge", "Where the time of the last step went.");
  for (const auto& [part, seconds] : {std::pair("rollout", line.seconds.rollout),
                                      {"score", line.seconds.score},
                                      {"train", line.seconds.train},
                                      {"send", line.seconds.send}})
    page.sample({{"part", part}}, seconds);
  page.gauge("tail_seconds", "From 90% of the step's answers to the last.", line.rollouts.tail_seconds);
  page.family("engine_tokens_total", "counter", "Tokens that each engine generated, counted with their answer.");
  for (const auto& [engine, use] : use_) page.sample({{"engine", engine}}, use.tokens);
  page.family("engine_busy_seconds_total", "counter", "Time in which each engine had requests.");
  for (const auto& [engine, use] : use_) page.sample({{"engine", engine}}, use.busy_seconds);
  page.family("engine_idle_seconds_total", "counter",
              "Time in which each engine had no requests while another had some (stragglers).");
  for (const auto& [engine, use] : use_) page.sample({{"engine", engine}}, use.idle_seconds);
  page.counter("steps_total", "Steps trained.", steps_);
  page.counter("trained_tokens_total", "Tokens that went through the update.", trained_tokens_);
  page.counter("dropped_completions_total", "Completions that were lost or too stale.", dropped_);
  page.counter("skipped_updates_total", "Optimizer steps without a finite loss or gradient.", skipped_);
  page.counter("sent_bytes_total", "Bytes of the versions that were sent.", sent_bytes_);
  page.counter("send_seconds_total", "Total time of sends.", send_seconds_);
  return page.text();
}

}  // namespace bascule::ref
