#include <bascule/trainer_ref/grpo/reward/reward_batch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include <bascule/trainer_ref/grpo/process/line_process.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kBatch = 1024;  // the most completions in one request
constexpr int kTries = 3;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);  // quadrupled before each further try
constexpr std::chrono::milliseconds kStoppedInterval{200};
constexpr std::size_t kShown = 300;  // bytes of an answer in an error

nlohmann::json json_of(const Scored& scored) {
  const Problem& problem = *scored.problem;
  const Rollout& rollout = *scored.rollout;
  nlohmann::json json{{"prompt", problem.prompt},
                      {"completion", rollout.text},
                      {"answer", problem.answer},
                      {"finish_reason", rollout.finish_reason},
                      {"completion_tokens", rollout.token_ids.size()},
                      {"columns", problem.columns}};
  if (!problem.messages.is_null()) json["messages"] = problem.messages;
  if (!problem.prompt_token_ids.empty()) json["prompt_token_ids"] = problem.prompt_token_ids;
  return json;
}

std::string shown(std::string_view answer) {
  return answer.size() <= kShown ? std::string(answer) : cat(answer.substr(0, kShown), "…");
}

// Returns nullopt if the element is not a valid reward.
std::optional<double> reward_in(const nlohmann::json& element) {
  const auto named = element.is_object() ? element.find("reward") : element.end();
  const nlohmann::json& value = element.is_object() && named != element.end() ? *named : element;
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number() || !(std::abs(value.get<double>()) <= kLargestReward)) return std::nullopt;
  return value.get<double>();
}

// The common part of programs and servers: numbered batches, each tried three times.
class BatchReward : public Reward {
 public:
  BatchReward(std::string name, RewardOptions options) : name_(std::move(name)), options_(std::move(options)) {}

  absl::StatusOr<std::vector<double>> score(std::span<const Scored> completions) final {
    std::vector<double> rewards;
    rewards.reserve(completions.size());
    while (!completions.empty()) {
      const std::span<const Scored> batch = completions.first(std::min(kBatch, completions.size()));
      const std::uint64_t id = ++last_id_;
      BASCULE_ASSIGN(const std::string answer, ask_repeatedly(reward_request(id, batch)));
      BASCULE_ASSIGN(const std::vector<double> values, read_reward_answer(answer, id, batch.size()));
      rewards.insert(rewards.end(), values.begin(), values.end());
      completions = completions.subspan(batch.size());
    }
    return rewards;
  }

 protected:
  // Blocks for at most the timeout. UNAVAILABLE, DEADLINE_EXCEEDED: another try may succeed.
  virtual absl::StatusOr<std::string> ask(std::string_view request, absl::Duration timeout) = 0;

 private:
  absl::StatusOr<std::string> ask_repeatedly(const std::string& request) {
    absl::Duration pause = kFirstPause;
    for (int tried = 1;; ++tried) {
      absl::StatusOr<std::string> answer = ask(request, options_.timeout);
      if (answer.ok()) return answer;
      const bool again = absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status());
      if (!again) return answer;
      if (options_.stopped()) return absl::CancelledError("stopped while waiting for an answer");
      if (tried == kTries)
        return absl::Status(answer.status().code(), cat(message_of(answer.status()), " (tried ", tried, " times)"));
      options_.log(cat("reward ", name_, ": ", message_of(answer.status()), "; trying again"));
      absl::SleepFor(pause);
      pause *= 4;
    }
  }

  const std::string name_;
  std::uint64_t last_id_ = 0;

 protected:
  const RewardOptions options_;
};

class ExecReward final : public BatchReward {
 public:
  ExecReward(std::string name, std::vector<std::string> command, RewardOptions options,
             std::unique_ptr<LineProcess> process)
      : BatchReward(std::move(name), std::move(options)), command_(std::move(command)), process_(std::move(process)) {}

 private:
  absl::StatusOr<std::string> ask(std::string_view request, absl::Duration timeout) override {
    if (!process_) {
      BASCULE_ASSIGN(process_, LineProcess::start(command_));
    }
    absl::StatusOr<std::string> answer = process_->exchange(request, timeout, options_.stopped);
    if (!answer.ok()) process_.reset();
    return answer;
  }

  const std::vector<std::string> command_;
  std::unique_ptr<LineProcess> process_;  // null: must be restarted
};

class HttpReward final : public BatchReward {
 public:
  HttpReward(std::string name, std::string url, RewardOptions options)
      : BatchReward(std::move(name), std::move(options)), url_(std::move(url)) {}

 private:
  absl::StatusOr<std::string> ask(std::string_view request, absl::Duration timeout) override {
    std::mutex mutex;
    std::condition_variable_any changed;
    const std::jthread listener([&](const std::stop_token& answered) {  // the client's own wait does not call stopped()
      std::unique_lock lock(mutex);
      while (!changed.wait_for(lock, answered, kStoppedInterval, [] { return false; }) && !answered.stop_requested())
        if (options_.stopped()) return client_.cancel();
    });
    BASCULE_ASSIGN(HttpResponse response, client_.post_json(url_, request, timeout));
    if (response.status == 200) return std::move(response.body);
    const std::string text = cat("expected status 200, found ", response.status, ": ", shown(response.body));
    if (response.status == 429 || response.status >= 500) return absl::UnavailableError(text);
    return absl::FailedPreconditionError(text);
  }

  const std::string url_;
  HttpClient client_;
};

}  // namespace

std::string reward_request(std::uint64_t id, std::span<const Scored> completions) {
  nlohmann::json list = nlohmann::json::array();
  for (const Scored& scored : completions) list.push_back(json_of(scored));
  // A completion may end within a character.
  return nlohmann::json{{"id", id}, {"completions", std::move(list)}}.dump(-1, ' ', false,
                                                                           nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::vector<double>> read_reward_answer(std::string_view answer, std::uint64_t id, std::size_t count) {
  const absl::StatusOr<nlohmann::json> json = parse_json(answer, "the answer");
  const auto refused = [&](const auto&... why) {
    return invalid_argument(why..., "; expected {\"id\": ", id, ", \"rewards\": [", count,
                            " numbers]}, found: ", shown(answer));
  };
  if (!json.ok()) return refused(message_of(json.status()));
  if (!json->is_object()) return refused("the answer is not a JSON object");
  if (const auto found = json->find("id"); found == json->end() || *found != id)
    return refused("the answer has ", found == json->end() ? "no id" : cat("the id ", found->dump()));
  const auto list = json->find("rewards");
  if (list == json->end() || !list->is_array()) return refused("the answer has no list \"rewards\"");
  if (list->size() != count) return refused("the answer has ", list->size(), " rewards");
  std::vector<double> rewards;
  rewards.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<double> reward = reward_in((*list)[i]);
    if (!reward)
      return refused("rewards[", i, "] is ", shown((*list)[i].dump()),
                     ", neither a number from -1e6 to 1e6, null, true, false, nor an object with one as \"reward\"");
    rewards.push_back(*reward);
  }
  return rewards;
}

absl::StatusOr<std::unique_ptr<Reward>> exec_reward(std::string name, std::vector<std::string> command,
                                                    RewardOptions options) {
  BASCULE_ASSIGN(std::unique_ptr<LineProcess> process, LineProcess::start(command));
  return std::make_unique<ExecReward>(std::move(name), std::move(command), std::move(options), std::move(process));
}

std::unique_ptr<Reward> http_reward(std::string name, std::string url, RewardOptions options) {
  return std::make_unique<HttpReward>(std::move(name), std::move(url), std::move(options));
}

}  // namespace bascule::ref
