#include <bascule/trainer_ref/grpo/reward/reward_batch.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include <bascule/trainer_ref/grpo/process/line_process.h>
#include <bascule/trainer_ref/grpo/reward/reward_answer.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kBatch = 1024;  // the most completions in one request
constexpr int kTries = 3;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);  // quadrupled before each further try
constexpr std::chrono::milliseconds kStoppedInterval{200};
constexpr int kMostUseless = 10;  // answers in a row without a reward that can be used

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

// The lines of a program that were no answers.
class StrayLines {
 public:
  // Returns INVALID_ARGUMENT if there were too many since the last answer.
  absl::Status add(std::string_view line) {
    last_.push_back(shown_answer(line));
    if (last_.size() > kLastLines) last_.pop_front();
    if (++count_ < kMostStray) return absl::OkStatus();
    return invalid_argument("it printed ", count_, " lines and no answer", shown());
  }
  void clear() {
    last_.clear();
    count_ = 0;
  }
  // Returns "" if there are none.
  std::string shown() const {
    return last_.empty() ? "" : cat("; its last lines that are no answers: ", absl::StrJoin(last_, " | "));
  }

 private:
  static constexpr std::size_t kLastLines = 5, kMostStray = 1000;
  std::deque<std::string> last_;
  std::size_t count_ = 0;
};

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
      BASCULE_ASSIGN(const RewardAnswer answer, ask_repeatedly(id, batch));
      BASCULE_TRY(note_refused(answer));
      rewards.insert(rewards.end(), answer.rewards.begin(), answer.rewards.end());
      completions = completions.subspan(batch.size());
    }
    return rewards;
  }

 protected:
  // Returns an answer to request `id`. Blocks for at most the timeout. UNAVAILABLE, DEADLINE_EXCEEDED: another try may
  // succeed.
  virtual absl::StatusOr<std::string> ask(std::string_view request, std::uint64_t id, absl::Duration timeout) = 0;

  void log(std::string_view text) const { options_.log(cat("reward ", name_, ": ", text)); }

 private:
  absl::StatusOr<RewardAnswer> ask_repeatedly(std::uint64_t id, std::span<const Scored> batch) {
    const std::string request = reward_request(id, batch);
    absl::Duration pause = kFirstPause;
    for (int tried = 1;; ++tried) {
      const absl::StatusOr<std::string> text = ask(request, id, options_.timeout);
      absl::StatusOr<RewardAnswer> answer =
          text.ok() ? read_reward_answer(*text, id, batch.size()) : absl::StatusOr<RewardAnswer>(text.status());
      if (answer.ok()) return answer;
      const bool again = text.ok() || absl::IsUnavailable(text.status()) || absl::IsDeadlineExceeded(text.status());
      if (!again) return answer;
      if (options_.stopped()) return absl::CancelledError("stopped while waiting for an answer");
      if (tried == kTries)
        return absl::Status(answer.status().code(), cat(message_of(answer.status()), " (tried ", tried, " times)"));
      log(cat(message_of(answer.status()), "; trying again"));
      absl::SleepFor(pause);
      pause *= 4;
    }
  }

  // A run whose completions get no rewards learns nothing, so it does not go on like that for long.
  absl::Status note_refused(const RewardAnswer& answer) {
    if (answer.refused > 0)
      log(cat(answer.refused, " of ", answer.rewards.size(),
              " completions get no reward from it: ", answer.first_refused));
    useless_answers_ = answer.refused == answer.rewards.size() ? useless_answers_ + 1 : 0;
    if (useless_answers_ < kMostUseless) return absl::OkStatus();
    return invalid_argument("the last ", useless_answers_,
                            " answers have no reward that can be used: ", answer.first_refused);
  }

  const std::string name_;
  std::uint64_t last_id_ = 0;
  int useless_answers_ = 0;  // in a row

 protected:
  const RewardOptions options_;
};

class ExecReward final : public BatchReward {
 public:
  ExecReward(std::string name, std::vector<std::string> command, RewardOptions options,
             std::unique_ptr<LineProcess> process)
      : BatchReward(std::move(name), std::move(options)), command_(std::move(command)), process_(std::move(process)) {}

 private:
  absl::StatusOr<std::string> ask(std::string_view request, std::uint64_t id, absl::Duration timeout) override {
    if (!process_) {
      BASCULE_ASSIGN(process_, LineProcess::start(command_));
    }
    stray_.clear();
    const auto is_answer = [&](std::string_view line) { return look_at(line, id); };
    absl::StatusOr<std::string> answer = process_->exchange(request, timeout, options_.stopped, is_answer);
    if (answer.ok()) return answer;
    process_.reset();
    const bool waited = absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status());
    if (!waited) return answer;
    return absl::Status(answer.status().code(), cat(message_of(answer.status()), stray_.shown()));
  }

  // Passes over a line that is no answer.
  absl::StatusOr<bool> look_at(std::string_view line, std::uint64_t id) {
    if (!is_stray_line(line, id)) return true;
    if (!std::exchange(told_stray_, true))
      log(cat("passed over a line of its stdout that is no answer: ", shown_answer(line),
              " (later ones are not logged; a program should print such lines to stderr)"));
    BASCULE_TRY(stray_.add(line));
    return false;
  }

  const std::vector<std::string> command_;
  StrayLines stray_;  // since the last request
  bool told_stray_ = false;
  std::unique_ptr<LineProcess> process_;  // null: must be restarted
};

class HttpReward final : public BatchReward {
 public:
  HttpReward(std::string name, std::string url, RewardOptions options)
      : BatchReward(std::move(name), std::move(options)), url_(std::move(url)) {}

 private:
  absl::StatusOr<std::string> ask(std::string_view request, std::uint64_t, absl::Duration timeout) override {
    std::mutex mutex;
    std::condition_variable_any changed;
    const std::jthread listener([&](const std::stop_token& answered) {  // the client's own wait does not call stopped()
      std::unique_lock lock(mutex);
      while (!changed.wait_for(lock, answered, kStoppedInterval, [] { return false; }) && !answered.stop_requested())
        if (options_.stopped()) return client_.cancel();
    });
    BASCULE_ASSIGN(HttpResponse response, client_.post_json(url_, request, timeout));
    if (response.status == 200) return std::move(response.body);
    const std::string text = cat("expected status 200, found ", response.status, ": ", shown_answer(response.body));
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

absl::StatusOr<std::unique_ptr<Reward>> exec_reward(std::string name, std::vector<std::string> command,
                                                    RewardOptions options) {
  BASCULE_ASSIGN(std::unique_ptr<LineProcess> process, LineProcess::start(command));
  return std::make_unique<ExecReward>(std::move(name), std::move(command), std::move(options), std::move(process));
}

std::unique_ptr<Reward> http_reward(std::string name, std::string url, RewardOptions options) {
  return std::make_unique<HttpReward>(std::move(name), std::move(url), std::move(options));
}

}  // namespace bascule::ref
