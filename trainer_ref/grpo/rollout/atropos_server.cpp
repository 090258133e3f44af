#include <bascule/trainer_ref/grpo/rollout/atropos_server.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include <bascule/trainer_ref/grpo/rollout/engine_probe.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(60);  // a batch may have 256 MiB
constexpr absl::Duration kLeast = absl::Seconds(1);    // for the last request before --batch-timeout
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kQuiet = absl::Minutes(1);  // between lines of a long wait

absl::StatusOr<nlohmann::json> json_of(const absl::StatusOr<HttpResponse>& response) {
  BASCULE_TRY(response.status());
  if (response->status != 200) return unavailable("HTTP ", response->status, ": ", reason_in(*response));
  return parse_json(response->body, "the answer");
}

}  // namespace

absl::StatusOr<nlohmann::json> AtroposServer::get(std::string_view path) {
  return json_of(client_.get(cat(options_.url, path), kAnswer));
}

absl::Status AtroposServer::register_trainer(const AtroposRun& run) {
  run_ = run;
  const std::string name = cat("the Atropos server ", options_.url);
  const nlohmann::json trainer{{"wandb_group", ""},
                               {"wandb_project", ""},
                               {"batch_size", run.batch_size},
                               {"max_token_len", run.max_tokens},
                               {"checkpoint_dir", run.folder},
                               {"save_checkpoint_interval", run.save_every},
                               {"starting_step", run.starting_step},
                               {"num_steps", run.steps}};
  const absl::StatusOr<nlohmann::json> registered =
      json_of(client_.post_json(cat(options_.url, "/register"), trainer.dump(), kAnswer));
  if (!registered.ok())
    return unavailable(name, " does not register this trainer: ", message_of(registered.status()),
                       "; start it with run-api, and give its address, as --rollouts=atropos:http://127.0.0.1:8000");
  if (!registered->is_object() || !registered->contains("uuid"))
    return failed_precondition(name, ": expected a \"uuid\" from /register, found ", registered->dump().substr(0, 80));
  const absl::StatusOr<nlohmann::json> info = get("/info");
  BASCULE_TRY(annotate(info.status(), name));
  const nlohmann::json size = info->is_object() ? info->value("batch_size", nlohmann::json()) : nlohmann::json();
  if (size != run.batch_size)
    return failed_precondition(name, " makes batches of ", size.dump(), " sequences for an earlier trainer, expected ",
                               run.batch_size, " (--prompts-per-step times --group-size); restart it, or call its ",
                               "/reset_data first");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<AtroposBatch>> AtroposServer::ask(absl::Duration timeout) {
  const absl::StatusOr<HttpResponse> response = client_.get(cat(options_.url, "/batch"), timeout);
  BASCULE_TRY(response.status());
  if (response->status != 200) return unavailable("HTTP ", response->status, ": ", reason_in(*response));
  absl::StatusOr<std::optional<AtroposBatch>> batch = read_atropos_batch(response->body, options_.limits);
  if (!absl::IsUnavailable(batch.status())) {
    knows_us_ = true;
    return batch;
  }
  if (std::exchange(knows_us_, false))
    options_.log(cat(options_.url, " was restarted, and knows no trainer; registering again"));
  BASCULE_TRY(register_trainer(run_));
  return batch;
}

// For errors and the log.
std::string AtroposServer::state() {
  const absl::StatusOr<nlohmann::json> status = get("/status");
  if (!status.ok()) return cat("it does not answer: ", message_of(status.status()));
  return cat("its queue has ", status->is_object() ? status->value("queue_size", nlohmann::json()).dump() : "?",
             " groups, and a step needs ", run_.batch_size, " sequences; does an environment run?");
}

absl::StatusOr<AtroposBatch> AtroposServer::next_batch() {
  // A server that is slow, or silent, must not hold up the checkpoint of a run that is stopped.
  std::mutex mutex;
  std::condition_variable_any never;
  const std::jthread watch([&](const std::stop_token& over) {
    std::unique_lock lock(mutex);
    while (!over.stop_requested() && !options_.stopped())
      never.wait_for(lock, over, on_clock(kPause), [] { return false; });
    if (!over.stop_requested()) client_.cancel();
  });
  const Deadline deadline(options_.batch_timeout);
  Deadline quiet(kQuiet);
  absl::Status last;
  while (true) {
    absl::StatusOr<std::optional<AtroposBatch>> batch = ask(std::clamp(deadline.left(), kLeast, kAnswer));
    if (batch.ok() && *batch) return **std::move(batch);
    if (!batch.ok() && !absl::IsUnavailable(batch.status()) && !absl::IsDeadlineExceeded(batch.status()))
      return annotate(batch.status(), cat("the Atropos server ", options_.url));
    last = batch.status();
    if (options_.stopped()) return absl::CancelledError("stopped while a batch was awaited");
    if (deadline.passed())
      return deadline_exceeded("the Atropos server ", options_.url, " had no batch within ",
                               absl::FormatDuration(options_.batch_timeout),
                               " (--batch-timeout): ", last.ok() ? state() : message_of(last));
    if (quiet.passed()) {
      options_.log(cat("waiting for a batch of ", options_.url, ": ", last.ok() ? state() : message_of(last)));
      quiet = Deadline(kQuiet);
    }
    absl::SleepFor(std::min(kPause, deadline.left()));
  }
}

}  // namespace bascule::ref
