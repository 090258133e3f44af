#include "conformance/suite.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "support/nccl/own_host.h"
#include <bascule/transport/status.h>

namespace bascule::test {

Stage::Stage() {
  const std::filesystem::path token = folder_.path() / "token";
  std::ofstream(token) << "the token of this test\n";
  std::filesystem::permissions(token, std::filesystem::perms::owner_read);
}

std::string Stage::endpoint(std::string_view options) const {
  const std::string folder = (folder_.path() / "endpoint").string();
  const std::string host = cat("127.0.0.1:", port_.number());
  const std::string token = cat("token_file=", (folder_.path() / "token").string());
  switch (GetParam().place) {
    case Place::kFolder: return url(cat(folder, "?"), options);
    case Place::kHost: return url(cat(host, "?state=", folder, "&", token, "&"), options);
    case Place::kBoth: return url(cat(folder, "?listen=", host, "&", token, "&"), options);
  }
  return "";
}

std::string Stage::workers_endpoint(std::string_view options) {
  if (GetParam().place != Place::kBoth) return endpoint(options);
  next_over_tcp_ = !next_over_tcp_;
  if (!next_over_tcp_) return endpoint(options);
  return url(cat("127.0.0.1:", port_.number(), "?token_file=", (folder_.path() / "token").string(), "&"), options);
}

std::string Stage::url(std::string place, std::string_view options) const {
  const auto milliseconds = [](absl::Duration duration) { return absl::ToInt64Milliseconds(duration); };
  std::string url = cat(GetParam().scheme, "://", place, "heartbeat=50ms");
  const auto unless_given = [&](std::string_view name, absl::Duration limit) {
    if (options.find(cat(name, "=")) == std::string_view::npos)
      absl::StrAppend(&url, "&", cat(name), "=", milliseconds(limit), "ms");
  };
  // "flip_timeout=" contains "timeout=", so a test must give both or neither.
  unless_given("suspect_after", patience());
  unless_given("flip_timeout", patience());
  unless_given("timeout", patience());
  for (const std::string_view each : {std::string_view(GetParam().options), options})
    if (!each.empty()) absl::StrAppend(&url, "&", cat(each));
  return url;
}

std::string Stage::hasty() {
  const auto limit = absl::ToInt64Milliseconds(silence());
  return cat("suspect_after=", limit, "ms&flip_timeout=", limit, "ms&timeout=", 4 * limit, "ms");
}

// NCCL keeps a thread and 21 descriptors of an init that was given up (at most one per round), and there may be one
// communicator group more than before (schemes/nccl/README.md). In a relay of three workers, each may copy from both
// others: it maps their progress pages, of which it keeps the descriptors, and two receive buffers each. If it shares
// their buffers, it has up to two leases; if it later shows its own, it has two, each mapped twice. With auto, a worker
// may take another path than its predecessor of that name: one that shows a page and two buffers, and has a thread to
// map what engines show. The sender's mirrors stay once they are made.
Footprint Stage::with_what_the_scheme_keeps(Footprint held, std::size_t rounds) const {
  constexpr std::size_t kShown = 3, kOthers = 2, kWorkers = 3, kMirrors = 3;
  if (is_nccl(endpoint())) held.descriptors += 64 + 21 * rounds, held.threads += 8 + rounds;
  if (hands_on()) held.mappings += kShown * kOthers + 2 * 2, held.descriptors += kOthers + 2 + 2;
  if (!GetParam().scheme.ends_with("auto")) return held;
  held.descriptors += kShown * kWorkers + kMirrors;
  held.mappings += kShown + kMirrors;
  held.threads += 2;
  return held;
}

bool Stage::leaves_nothing() const { return !is_nccl(endpoint()); }

absl::StatusOr<Sender> Stage::try_listen(std::string_view options) {
  SenderOptions sender{.endpoint = endpoint(options), .threads = 2};
  sender.scheme = given_scheme();
  sender.log = [this, start = Clock::now()](std::string_view line) {
    const std::lock_guard lock(log_mutex_);
    log_ += cat(absl::StrFormat("%8.3f  ", seconds_between(start, Clock::now())), line, "\n");
  };
  return Sender::listen(std::move(sender));
}

void Stage::SetUp() {
  be_a_separate_host(endpoint());
  if (device() == kHost && engine_device() == kHost) return;
  const int needs = std::max(device(), engine_device()) + 1;
  if (gpu_count() < needs) GTEST_SKIP() << "needs " << needs << " GPU(s), found " << gpu_count();
  const bool on_peers = device() != kHost && engine_device() != kHost && device() != engine_device();
  if (on_peers && !can_reach(engine_device(), device())) GTEST_SKIP() << "needs GPUs that read each other's memory";
  warm_up(device());
  warm_up(engine_device());
  model_.place_on(device());
}

void Stage::TearDown() {
  if (HasFailure()) std::fputs(log_.c_str(), stderr);
}

void Stage::listen(std::string_view options) {
  absl::StatusOr<Sender> sender = try_listen(options);
  ASSERT_THAT(sender, IsOk());
  sender_.emplace(*std::move(sender));
  ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
}

std::unique_ptr<Worker> Stage::start(std::string name, std::string_view options, std::optional<Apply> copies) {
  return start({.endpoint = workers_endpoint(options), .name = std::move(name), .copies = copies});
}

std::unique_ptr<Worker> Stage::start_rank(std::string group, std::uint32_t rank, std::uint32_t ranks,
                                          std::string_view options, std::optional<Apply> copies) {
  std::string name = cat(group, "-", rank);
  return start({.endpoint = workers_endpoint(options),
                .name = std::move(name),
                .model = ModelSize::kSmall,
                .group = std::move(group),
                .rank = rank,
                .ranks = ranks,
                .copies = copies});
}

std::unique_ptr<Worker> Stage::start(WorkerArguments arguments) {
  arguments.device = engine_device();
  if (GetParam().readers == Readers::kThreads) return std::make_unique<WorkerThread>(std::move(arguments));
  return std::make_unique<WorkerProcess>(arguments);
}

std::unique_ptr<Worker> Stage::join(std::string name, std::string_view options, std::optional<Apply> copies) {
  std::unique_ptr<Worker> worker = start(std::move(name), options, copies);
  worker->tell("run");
  return worker;
}

std::unique_ptr<WorkerProcess> ConformanceProcesses::start_process(std::string name, std::string_view options) {
  return std::make_unique<WorkerProcess>(WorkerArguments{.endpoint = workers_endpoint(options),
                                                         .name = std::move(name),
                                                         .model = ModelSize::kSmall,
                                                         .device = engine_device()});
}

std::unique_ptr<WorkerProcess> ConformanceProcesses::join_process(std::string name, std::string_view options) {
  std::unique_ptr<WorkerProcess> worker = start_process(std::move(name), options);
  worker->tell("run");
  return worker;
}

void Stage::wait_for_workers(int count) { EXPECT_THAT(sender_->wait_for_workers(count, patience()), IsOk()); }

SendReport Stage::send() {
  model_.step(++generation_);
  absl::StatusOr<SendReport> report = sender_->send();
  EXPECT_THAT(report, IsOk());
  return report.ok() ? *std::move(report) : SendReport{};
}

SendReport Stage::send_complete(std::size_t count) {
  SendReport report = send();
  const auto serving = std::ranges::count(report.workers, WorkerState::kServing, &WorkerReport::state);
  EXPECT_EQ(static_cast<std::size_t>(serving), count) << "of version " << report.version;
  for (const WorkerReport& worker : report.workers)  // those that a test ended since the last report are evicted
    EXPECT_TRUE(worker.state == WorkerState::kServing || worker.state == WorkerState::kEvicted)
        << "worker " << worker.worker << " of version " << report.version << ": " << worker.error;
  return report;
}

void Stage::expect_newest(std::initializer_list<Worker*> workers) {
  for (Worker* worker : workers) {
    const auto serves_it = [this](const Observed& now) {
      return (now.generation == generation_ && now.state == "serving") || !now.wrong.empty();
    };
    const Observed seen = worker->wait_until(serves_it, cat("serving generation ", generation_));
    EXPECT_EQ(seen.version, sender_->version()) << "worker " << worker->name();
    EXPECT_EQ(seen.wrong, "") << "worker " << worker->name();
  }
}

WorkerReport entry(const SendReport& report, std::string_view worker) {
  const auto found = std::ranges::find(report.workers, worker, &WorkerReport::worker);
  if (found != report.workers.end()) return *found;
  ADD_FAILURE() << "the report of version " << report.version << " does not name worker " << worker;
  return {};
}

}  // namespace bascule::test
