// fleet: the cost of a thousand workers to a sender. The workers are a fake fleet, one process that speaks the real
// protocol (fake_fleet.h). The sender is in this process, so this process's CPU time does not include the workers'.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>

#include <bascule/bench/fleet_process.h>
#include <bascule/bench/footprint.h>
#include <bascule/bench/model.h>
#include <bascule/bench/scenario.h>
#include <bascule/bench/targets.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr int kSends = 20;  // per measurement: work after a send counts for the next send
constexpr int kFleetTurns = 5;
constexpr std::uint64_t kTensors = 338, kManyTensors = 10'000, kVeryManyTensors = 100'000;
constexpr std::uint64_t kQuick = 100;  // with --quick the last two are this many times smaller

double cpu_seconds() {  // all threads of this process
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double memory() { return static_cast<double>(footprint({}).rest_private_dirty); }

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// A sender with a model, and its fleet.
class Bed {
 public:
  static absl::StatusOr<std::unique_ptr<Bed>> make(Context& context, std::uint64_t tensors) {
    const std::filesystem::path folder = context.folder / std::to_string(++context.endpoints);
    const std::string url = context.sync.endpoint(folder, "");
    BASCULE_ASSIGN(Model model, Model::make(fleet_model(tensors), context.options.seed, context.pool));
    std::unique_ptr<Bed> bed(new Bed(std::move(model)));
    BASCULE_ASSIGN(Sender sender, Sender::listen({.endpoint = url, .threads = 1}));
    bed->sender_.emplace(std::move(sender));
    BASCULE_TRY(bed->model_.step(1));
    BASCULE_TRY(bed->sender_->register_model(bed->model_.source()));
    BASCULE_ASSIGN(FleetProcess fleet, FleetProcess::start(url, tensors));
    bed->fleet_.emplace(std::move(fleet));
    return bed;
  }

  Sender& sender() { return *sender_; }
  FleetProcess& fleet() { return *fleet_; }

  // Adds `count` workers at once, waits until all serve the newest version, and returns how many were dropped.
  absl::StatusOr<int> join(int count) {
    BASCULE_ASSIGN(const FleetProcess::State before, fleet_->settled());
    BASCULE_TRY(fleet_->join(count));
    BASCULE_ASSIGN(const FleetProcess::State after, fleet_->settled(before.serving + before.lost + count));
    if (after.lost > before.lost) why_ = after.why;
    return after.lost - before.lost;
  }
  absl::Status join_all(int count) {
    for (int left = count; left > 0; left -= 32) {
      BASCULE_ASSIGN(const int dropped, join(std::min(left, 32)));
      if (dropped > 0) return absl::InternalError(cat(dropped, " of 32 workers were dropped: ", why_));
    }
    // Their acks may still be on the way; if a send came first, those workers would have to catch up.
    BASCULE_ASSIGN(const FleetProcess::State state, fleet_->settled());
    return sender_->wait_for_workers(state.serving, absl::Minutes(1)).status();
  }
  const std::string& why() const { return why_; }

  // The CPU time of a send to `workers`, in seconds.
  absl::StatusOr<double> send_cpu(int workers) {
    const double before = cpu_seconds();
    for (int i = 0; i < kSends; ++i) BASCULE_TRY(send(workers).status());
    return (cpu_seconds() - before) / kSends;
  }
  absl::StatusOr<double> send(int workers) {  // wall-clock seconds
    const Clock::time_point start = Clock::now();
    BASCULE_ASSIGN(const SendReport report, sender_->send());
    const double seconds = seconds_between(start, Clock::now());
    const auto serve = std::ranges::count(report.workers, WorkerState::kServing, &WorkerReport::state);
    if (serve != workers)
      return absl::InternalError(cat("version ", report.version, " went to ", serve, " workers, expected ", workers));
    return seconds;
  }

 private:
  explicit Bed(Model model) : model_(std::move(model)) {}
  Model model_;
  std::optional<Sender> sender_;
  std::optional<FleetProcess> fleet_;
  std::string why_;
};

void add(Context& context, std::string what, std::string unit, double found, std::optional<double> at_most,
         std::string note = "") {
  const double rounded = found < 100 ? std::round(100 * found) / 100 : std::round(found);
  context.results.counts.push_back({.scheme = context.sync.scheme,
                                    .what = std::move(what),
                                    .unit = std::move(unit),
                                    .found = rounded,
                                    .at_most = at_most,
                                    .note = std::move(note)});
}

// Counts the cost of one send per worker: a send to no workers is subtracted. For the largest fleet, also counts the
// memory per worker and the cost of heartbeats.
absl::StatusOr<double> count_sends(Context& context, int workers, bool largest) {
  BASCULE_ASSIGN(const std::unique_ptr<Bed> bed, Bed::make(context, kTensors));
  BASCULE_TRY(bed->send_cpu(0).status());
  const double held = memory();
  std::vector<double> alone, together;
  for (int i = 0; i < kFleetTurns; ++i) {
    BASCULE_ASSIGN(alone.emplace_back(), bed->send_cpu(0));
  }
  BASCULE_TRY(bed->join_all(workers));
  BASCULE_TRY(bed->send_cpu(workers).status());
  for (int i = 0; i < kFleetTurns; ++i) {
    context.progress(cat(workers, " workers, ", i + 1, "/", kFleetTurns));
    BASCULE_ASSIGN(together.emplace_back(), bed->send_cpu(workers));
  }
  const double each = 1e6 * (median(together) - median(alone)) / workers;
  add(context, cat("CPU of a send per worker, ", workers, " workers"), "us", each, kMostCpuOfSendMicroseconds);
  if (!largest) return each;
  add(context, cat("memory of the sender per worker, ", workers, " workers, ", kTensors, " tensors"), "bytes",
      (memory() - held) / workers, kMostMemoryOfWorkerBytes);
  const int kept_seconds = context.options.quick ? 1 : 5;
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(kept_seconds));
  add(context, cat(workers, " heartbeats per second, both ways"), "% of a core",
      100 * (cpu_seconds() - before) / kept_seconds, kMostHeartbeatPercent);
  return each;
}

absl::Status count_growth(Context& context) {
  double first = 0, last = 0;
  const std::vector<int>& fleets = context.options.fleets;
  for (const int workers : fleets) {
    BASCULE_ASSIGN(last, count_sends(context, workers, workers == fleets.back()));
    if (workers <= 64 || first == 0) first = last;
  }
  if (fleets.back() > 64)
    add(context, cat("growth of that to ", fleets.back(), " workers"), "times", last / first, kMostGrowthOfSend);
  return absl::OkStatus();
}

absl::Status count_joins(Context& context, int workers, std::uint64_t tensors) {
  BASCULE_ASSIGN(const std::unique_ptr<Bed> bed, Bed::make(context, tensors));
  BASCULE_TRY(bed->send(0).status());
  const double held = memory(), before = cpu_seconds();
  context.progress(cat(workers, " join at once, ", tensors, " tensors"));
  BASCULE_ASSIGN(const int dropped, bed->join(workers));
  const double cpu = cpu_seconds() - before;
  const std::string what = cat(workers, " join at once, ", tensors, " tensors");
  const bool few = tensors == kTensors;
  add(context, cat(what, ": dropped"), "workers", dropped, 0, bed->why());
  add(context, cat(what, ": CPU"), "ms", 1e3 * cpu, few ? std::optional(kMostCpuOfJoinsMilliseconds) : std::nullopt);
  if (!few && dropped == 0)
    add(context, cat("memory of the sender per worker, ", workers, " workers, ", tensors, " tensors"), "bytes",
        (memory() - held) / workers, kMostMemoryOfManyTensorsBytes);
  return absl::OkStatus();
}

// A worker dies between seal and decision; the others still get `decided`. Alternates with sends without a death; a new
// worker replaces each dead one.
absl::Status count_death(Context& context, int workers) {
  BASCULE_ASSIGN(const std::unique_ptr<Bed> bed, Bed::make(context, kTensors));
  BASCULE_TRY(bed->send(0).status());
  BASCULE_TRY(bed->join_all(workers));
  BASCULE_TRY(bed->send(workers).status());
  std::vector<double> extra;
  for (int i = 0; i < context.options.small_repeat() / 20; ++i) {
    context.progress(cat("a death among ", workers));
    BASCULE_ASSIGN(const double before, bed->send(workers));
    BASCULE_TRY(bed->fleet().kill_when_sealed());
    BASCULE_ASSIGN(const double with, bed->send(workers - 1));
    BASCULE_TRY(bed->join_all(1));
    BASCULE_ASSIGN(const double after, bed->send(workers));
    extra.push_back(with - (before + after) / 2);
  }
  add(context, cat("one death among ", workers, ": longer send of the others"), "ms",
      std::max(0.0, 1e3 * median(extra)), kMostOfDeathMilliseconds);
  return absl::OkStatus();
}

absl::Status count_large_models(Context& context, std::uint64_t tensors) {
  constexpr int kWorkers = 24;
  BASCULE_ASSIGN(const std::unique_ptr<Bed> bed, Bed::make(context, tensors));
  context.progress(cat(kWorkers, " workers, ", tensors, " tensors"));
  BASCULE_TRY(bed->fleet().join(kWorkers));
  BASCULE_TRY(bed->sender().wait_for_workers(kWorkers, absl::Minutes(1)).status());
  BASCULE_ASSIGN(const double first, bed->send(kWorkers));
  BASCULE_ASSIGN(const FleetProcess::State state, bed->fleet().settled());
  const std::string what = cat(kWorkers, " workers, ", tensors, " tensors");
  add(context, cat(what, ": dropped or evicted"), "workers", state.lost, 0, state.why);
  add(context, cat(what, ": first send"), "s", first, kMostOfFirstSendSeconds);
  return absl::OkStatus();
}

}  // namespace

absl::Status run_fleet_scenario(Context& context) {
  const int workers = std::min(512, context.options.fleets.back());
  const std::uint64_t fewer = context.options.quick ? kQuick : 1;
  BASCULE_TRY(count(context, "sends", [&] { return count_growth(context); }));
  BASCULE_TRY(count(context, "joins", [&] { return count_joins(context, workers, kTensors); }));
  BASCULE_TRY(
      count(context, "joins with many tensors", [&] { return count_joins(context, workers, kManyTensors / fewer); }));
  BASCULE_TRY(count(context, "a death", [&] { return count_death(context, workers); }));
  return count(context, "a large model", [&] { return count_large_models(context, kVeryManyTensors / fewer); });
}

}  // namespace bascule::bench
