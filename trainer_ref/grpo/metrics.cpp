#include <bascule/trainer_ref/grpo/metrics.h>

#include <fcntl.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>

#include <bascule/transport/json.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

nlohmann::json number(double value) {  // JSON knows no NaN
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

absl::Status write_lines(const std::filesystem::path& file, const std::vector<nlohmann::json>& lines) {
  std::string text;
  for (const nlohmann::json& line : lines) text += line.dump() + "\n";
  return write_file(file, text);
}

}  // namespace

nlohmann::json to_json(const StepMetrics& metrics) {
  nlohmann::json line{{"step", metrics.step},
                      {"version", metrics.version},
                      {"reward_mean", number(metrics.reward_mean)},
                      {"reward_std", number(metrics.reward_std)},
                      {"loss", number(metrics.loss)},
                      {"kl", number(metrics.kl)},
                      {"clip_fraction", number(metrics.clip_fraction)},
                      {"grad_norm", number(metrics.grad_norm)},
                      {"completion_tokens_mean", number(metrics.completion_tokens_mean)},
                      {"staleness_mean", number(metrics.staleness_mean)},
                      {"seconds",
                       {{"rollout", number(metrics.seconds.rollout)},
                        {"score", number(metrics.seconds.score)},
                        {"train", number(metrics.seconds.train)},
                        {"send", number(metrics.seconds.send)}}},
                      {"elapsed_seconds", metrics.elapsed_seconds},
                      {"dropped", metrics.dropped},
                      {"skipped_updates", metrics.skipped_updates}};
  if (metrics.send) line["send"] = send_json(*metrics.send);
  nlohmann::json& engines = line["engines"] = nlohmann::json::array();
  for (const EngineSpan& span : metrics.engines)
    engines.push_back({{"engine", span.engine},
                       {"version", span.version},
                       {"begin", span.begin_seconds},
                       {"end", span.end_seconds},
                       {"tokens", span.tokens}});
  if (!metrics.rewards.empty()) line["rewards"] = by_name(metrics.rewards);
  if (!metrics.eval_rewards.empty()) line["eval_rewards"] = by_name(metrics.eval_rewards);
  if (metrics.eval_reward) line["eval_reward"] = *metrics.eval_reward;
  if (metrics.eval_greedy) line["eval_greedy"] = *metrics.eval_greedy;
  return line;
}

std::string progress_line(const StepMetrics& metrics, std::int64_t last_step) {
  const auto print = [](const char* format, auto... values) {
    char text[160];
    std::snprintf(text, sizeof text, format, values...);
    return std::string(text);
  };
  std::string line = print("step %lld/%lld  v%llu", static_cast<long long>(metrics.step),
                           static_cast<long long>(last_step), static_cast<unsigned long long>(metrics.version));
  if (std::isfinite(metrics.reward_mean))
    line += print("  reward %.3f  loss %+.4f  grad %.3f  stale %.2f  roll %.2f s  train %.2f s  send %.1f ms",
                  metrics.reward_mean, metrics.loss, metrics.grad_norm, metrics.staleness_mean, metrics.seconds.rollout,
                  metrics.seconds.train, metrics.seconds.send * 1e3);
  if (std::isfinite(metrics.kl)) line += print("  kl %.4f", metrics.kl);
  if (metrics.dropped > 0) line += print("  dropped %lld", static_cast<long long>(metrics.dropped));
  if (metrics.skipped_updates > 0)
    line +=
        print("  skipped %lld updates: loss or gradient not finite", static_cast<long long>(metrics.skipped_updates));
  if (metrics.eval_reward && metrics.eval_greedy)
    line += print("  |  held out: %.3f sampled, %.3f greedy", *metrics.eval_reward, *metrics.eval_greedy);
  return line;
}

absl::StatusOr<std::vector<nlohmann::json>> read_json_lines(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return absl::NotFoundError(cat("cannot read ", file.string()));
  std::vector<nlohmann::json> lines;
  std::string text;
  for (int number = 1; std::getline(stream, text); ++number) {
    if (stream.eof()) break;  // no newline behind it
    BASCULE_ASSIGN(nlohmann::json line, parse_json(text, cat(file.string(), " line ", number)));
    lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status append_json_line(const std::filesystem::path& file, const nlohmann::json& line) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) return errno_status(errno, cat("open ", file.string()));
  return write_all(fd.get(), line.dump() + "\n", file.string());
}

absl::Status keep_steps(const std::filesystem::path& file, std::int64_t last_step) {
  if (std::error_code error; !std::filesystem::exists(file, error)) return absl::OkStatus();
  BASCULE_ASSIGN(std::vector<nlohmann::json> lines, read_json_lines(file));
  std::erase_if(lines, [&](const nlohmann::json& line) {
    return !line.is_object() || line.value("step", std::int64_t{0}) > last_step;
  });
  return write_lines(file, lines);
}

}  // namespace bascule::ref
