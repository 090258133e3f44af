// ranks: what the messages of 64 ranks of a sharded trainer cost. All ranks are threads of this process, and 64 workers
// are a fake fleet in another one (fake_fleet.h), so this process's CPU time is the ranks'. An unsharded sender with a
// fleet of the same size sends in turns with them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <bascule/bench/fleet_process.h>
#include <bascule/bench/model.h>
#include <bascule/bench/other_ranks.h>
#include <bascule/bench/scenario.h>
#include <bascule/bench/targets.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr std::size_t kRanks = 64;
constexpr int kFleet = 64, kSendsOfRanks = 20, kTurnsOfRanks = 7;
constexpr std::uint64_t kBytesOfTensor = 1024, kFewShardedTensors = 338, kManyShardedTensors = 10'000;

double cpu_seconds_of(clockid_t clock) {  // of the process, or of the calling thread
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A trainer of one or more ranks, with its model.
class RanksTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<RanksTrainer>> make(Context& context, std::size_t ranks, std::uint64_t tensors,
                                                            bool counts_messages) {
    const std::filesystem::path folder = context.folder / std::to_string(++context.endpoints);
    BASCULE_ASSIGN(
        Model model,
        Model::make({.bytes = kBytesOfTensor * tensors, .tensors = tensors, .kind = ModelShape::Kind::kEqual},
                    context.options.seed, context.pool));
    std::unique_ptr<RanksTrainer> made(new RanksTrainer(std::move(model)));
    made->endpoint_ = context.sync.endpoint(folder, "");
    SenderOptions options{.endpoint = made->endpoint_, .threads = 1, .expect_workers = {.count = 0}};
    options.ranks = static_cast<std::uint32_t>(ranks);
    if (counts_messages)
      options.trace = [all = made.get()](std::string_view message) {
        for (const std::string_view planning : {": shards", ": plan", ": slot", ": mapped"})
          if (message.ends_with(planning)) ++all->planning_messages_;
      };
    BASCULE_TRY(made->model_.step(1));
    BASCULE_ASSIGN(Sender sender, Sender::listen(options));
    made->sender_.emplace(std::move(sender));
    BASCULE_ASSIGN(made->others_, OtherRanks::listen(options, ranks));
    const Clock::time_point begun = Clock::now();
    BASCULE_TRY(made->others_.on_all(*made->sender_, [&](Sender& of_rank, std::size_t rank) {
      return ranks == 1 ? of_rank.register_model(made->model_.source())
                        : of_rank.register_shards(std::make_unique<FixedShards>(made->model_.shards(rank, ranks)));
    }));
    made->register_seconds_ = seconds_between(begun, Clock::now());
    return made;
  }

  absl::Status send(int workers) {
    ++step_;
    return others_.on_all(*sender_, [&](Sender& sender, std::size_t rank) -> absl::Status {
      const double before = cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID);
      BASCULE_ASSIGN(const SendReport report, others_.empty() ? sender.send() : sender.send({.step = step_}));
      if (rank > 0) cpu_of_others_.fetch_add(cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID) - before);
      const auto serve = std::ranges::count(report.workers, WorkerState::kServing, &WorkerReport::state);
      if (serve == workers) return absl::OkStatus();
      return absl::InternalError(cat("a version went to ", serve, " workers, expected ", workers));
    });
  }
  absl::Status add_fleet() {
    BASCULE_ASSIGN(FleetProcess fleet, FleetProcess::start(endpoint_, 0));
    fleet_.emplace(std::move(fleet));
    BASCULE_TRY(send(0));
    BASCULE_TRY(fleet_->join(kFleet));
    BASCULE_TRY(fleet_->settled(kFleet).status());
    return sender_->wait_for_workers(kFleet, absl::Minutes(1)).status();
  }
  // The CPU seconds of a send: of rank 0, which has the workers, and of all other ranks.
  struct Cpu {
    double rank_0 = 0, others = 0;
  };
  absl::StatusOr<Cpu> send_cpu(int workers) {
    cpu_of_others_ = 0;
    const double before = cpu_seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < kSendsOfRanks; ++i) BASCULE_TRY(send(workers));
    const double all = cpu_seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before, others = cpu_of_others_;
    return Cpu{.rank_0 = (all - others) / kSendsOfRanks, .others = others / kSendsOfRanks};
  }
  double register_seconds() const { return register_seconds_; }
  int planning_messages() const { return planning_messages_; }

 private:
  explicit RanksTrainer(Model model) : model_(std::move(model)) {}
  Model model_;
  std::string endpoint_;
  std::atomic<int> planning_messages_ = 0;
  std::atomic<double> cpu_of_others_ = 0;  // threads that only wait take none
  double register_seconds_ = 0;
  std::uint64_t step_ = 0;
  std::optional<Sender> sender_;
  OtherRanks others_;
  std::optional<FleetProcess> fleet_;
};

void count_of_ranks(Context& context, std::string what, std::string unit, double found, std::optional<double> at_most) {
  context.results.counts.push_back({.scheme = context.sync.scheme,
                                    .what = std::move(what),
                                    .unit = std::move(unit),
                                    .found = std::round(100 * found) / 100,
                                    .at_most = at_most});
}

absl::Status count_control_plane(Context& context) {
  BASCULE_ASSIGN(const std::unique_ptr<RanksTrainer> one, RanksTrainer::make(context, 1, kFewShardedTensors, false));
  std::vector<double> alone, unsharded, sharded, others;
  BASCULE_TRY(one->send_cpu(0).status());
  for (int i = 0; i < kTurnsOfRanks; ++i) {
    BASCULE_ASSIGN(const RanksTrainer::Cpu cpu, one->send_cpu(0));
    alone.push_back(cpu.rank_0);
  }
  BASCULE_ASSIGN(const std::unique_ptr<RanksTrainer> many,
                 RanksTrainer::make(context, kRanks, kFewShardedTensors, false));
  BASCULE_TRY(one->add_fleet());
  BASCULE_TRY(many->add_fleet());
  BASCULE_TRY(one->send_cpu(kFleet).status());
  BASCULE_TRY(many->send_cpu(kFleet).status());
  for (int i = 0; i < kTurnsOfRanks; ++i) {
    context.progress(cat(kRanks, " ranks, ", kFleet, " workers, ", i + 1, "/", kTurnsOfRanks));
    BASCULE_ASSIGN(const RanksTrainer::Cpu of_one, one->send_cpu(kFleet));
    BASCULE_ASSIGN(const RanksTrainer::Cpu of_many, many->send_cpu(kFleet));
    unsharded.push_back(of_one.rank_0);
    sharded.push_back(of_many.rank_0);
    others.push_back(of_many.others);
  }
  const double without = quantile(alone, 0.5);
  const double of_worker = (quantile(unsharded, 0.5) - without) / kFleet;
  const double of_each = (quantile(sharded, 0.5) - without) / (kRanks - 1 + kFleet);
  count_of_ranks(context, cat("unsharded: CPU of a send per worker, ", kFleet, " workers"), "us", 1e6 * of_worker, {});
  count_of_ranks(context, cat(kRanks, " ranks: CPU of a send on rank 0 per other rank or worker, ", kFleet, " workers"),
                 "us", 1e6 * of_each, {});
  count_of_ranks(context, cat(kRanks, " ranks: CPU of a send on each other rank, its bytes included"), "us",
                 1e6 * quantile(others, 0.5) / (kRanks - 1), {});
  count_of_ranks(context, "the second over the first", "times", of_each / of_worker, kMostOfRankOverWorker);
  return absl::OkStatus();
}

absl::Status count_planning(Context& context) {
  const std::uint64_t tensors = context.options.quick ? kManyShardedTensors / 100 : kManyShardedTensors;
  std::vector<double> seconds;
  int planning = 0;
  for (int i = 0; i < (context.options.quick ? 1 : 3); ++i) {
    context.progress(cat(kRanks, " ranks register ", tensors, " tensors"));
    BASCULE_ASSIGN(const std::unique_ptr<RanksTrainer> trainer, RanksTrainer::make(context, kRanks, tensors, true));
    seconds.push_back(trainer->register_seconds());
    for (int first = 0; first < 3; ++first) BASCULE_TRY(trainer->send(0));  // each slot is shown once
    const int before = trainer->planning_messages();
    for (int again = 0; again < 10; ++again) BASCULE_TRY(trainer->send(0));
    planning = trainer->planning_messages() - before;
  }
  count_of_ranks(context, cat("register_shards() of ", tensors, " tensors on ", kRanks, " ranks"), "s",
                 quantile(seconds, 0.5), kMostOfRegisteringSeconds);
  count_of_ranks(context, "messages that plan or show a slot, in ten more sends", "messages", planning,
                 kMostPlanningMessagesOfSend);
  return absl::OkStatus();
}

}  // namespace

absl::Status run_ranks(Context& context) {
  BASCULE_TRY(count(context, "ranks", [&] { return count_control_plane(context); }));
  return count(context, "planning", [&] { return count_planning(context); });
}

}  // namespace bascule::bench
