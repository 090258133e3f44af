#include <bascule/bench/rig.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

Stages stages_of(const SendReport& report, double seconds) {
  double ack = 0;
  for (const WorkerReport& worker : report.workers) ack = std::max(ack, worker.seconds);
  ack = std::min(ack, report.seconds.commit);
  // The wait for the disk overlaps the acks; only the time after the last ack is its own.
  const double persist = std::min(report.seconds.persist, report.seconds.commit - ack);
  Stages stages = {{"wait", report.seconds.wait},
                   {"pack", report.seconds.pack},
                   {"deliver", report.seconds.deliver},
                   {"prepare", report.seconds.prepare},
                   {"commit", report.seconds.commit - ack - persist},
                   {"ack", ack},
                   {"threads", std::max(0.0, seconds - report.seconds.total())}};
  if (persist > 0) stages["persist"] = persist;
  return stages;
}

absl::StatusOr<std::unique_ptr<Rig>> Rig::make(Context& context, const RigOptions& options) {
  const std::filesystem::path folder = context.folder / std::to_string(++context.endpoints);
  const std::string url = context.sync.endpoint(folder, options.endpoint_option);
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(url));
  BASCULE_ASSIGN(Model model, Model::make(options.model, context.options.seed, context.pool, context.gpu));
  std::unique_ptr<Rig> rig(new Rig(std::move(model)));
  rig->folder_ = folder;
  rig->endpoint_ = url;
  rig->before_ = footprint({});
  if (context.gpu) {
    BASCULE_ASSIGN(rig->gpu_free_before_, context.gpu->free_bytes());
  }
  const DType wire = endpoint.wire_dtype.value_or(options.model.dtype);
  rig->slot_bytes_ = rig->model_.shape().bytes / size_of(options.model.dtype) * size_of(wire);

  const int threads = options.sender_threads > 0 ? options.sender_threads : context.options.threads;
  SenderOptions sending{.endpoint = url, .threads = threads};
  if (context.options.log)
    sending.log = [start = Clock::now()](std::string_view line) {
      std::fprintf(stderr, "%9.4f  %.*s\n", seconds_between(start, Clock::now()), static_cast<int>(line.size()),
                   line.data());
    };
  sending.ranks = static_cast<std::uint32_t>(options.ranks);
  BASCULE_ASSIGN(Sender sender, Sender::listen(sending));
  rig->sender_.emplace(std::move(sender));
  if (options.ranks == 1) BASCULE_TRY(rig->sender_->register_model(rig->model_.source()));
  if (options.ranks > 1) BASCULE_TRY(rig->start_ranks(sending, options.ranks));
  for (int i = 0; i < options.workers; ++i) BASCULE_TRY(rig->start_worker(context, options));
  BASCULE_TRY(rig->sender_->wait_for_workers(options.workers, absl::Minutes(1)).status());
  BASCULE_TRY(rig->send().status());
  return rig;
}

absl::Status Rig::start_ranks(const SenderOptions& options, std::size_t ranks) {
  BASCULE_ASSIGN(ranks_, OtherRanks::listen(options, ranks));
  return ranks_.on_all(*sender_, [&](Sender& sender, std::size_t rank) {
    return sender.register_shards(std::make_unique<FixedShards>(model_.shards(rank, ranks)));
  });
}

absl::StatusOr<SendReport> Rig::send_on_all_ranks() {
  absl::StatusOr<SendReport> report;
  BASCULE_TRY(ranks_.on_all(*sender_, [&](Sender& sender, std::size_t rank) {
    absl::StatusOr<SendReport> sent = sender.send({.step = generation_});
    absl::Status status = sent.status();
    if (rank == 0) report = std::move(sent);
    return status;
  }));
  return report;
}

absl::Status Rig::start_worker(const Context& context, const RigOptions& options) {
  const std::vector<int>& devices = context.options.worker_devices;
  int device = devices.empty() ? context.worker_device : devices[workers_.size() % devices.size()];
  if (!left_devices_.empty()) {  // the device of the worker that it replaces
    device = left_devices_.back();
    left_devices_.pop_back();
  }
  BASCULE_ASSIGN(Worker worker, Worker::start({.endpoint = endpoint_,
                                               .name = cat("worker-", started_++),
                                               .seed = context.options.seed,
                                               .trainer_dtype = options.model.dtype,
                                               .tensors = options.model.tensors,
                                               .bytes = slot_bytes_,
                                               .device = device,
                                               .mode = options.mode}));
  workers_.push_back(std::move(worker));
  devices_.push_back(device);
  return absl::OkStatus();
}

absl::Status Rig::add_worker(const Context& context, const RigOptions& options) {
  BASCULE_TRY(begin_to_add_worker(context, options));
  BASCULE_TRY(workers_.back().answer().status());
  return sender_->wait_for_workers(static_cast<int>(workers_.size()), absl::Minutes(1)).status();
}

absl::Status Rig::begin_to_add_worker(const Context& context, const RigOptions& options) {
  BASCULE_TRY(start_worker(context, options));
  return workers_.back().ask({{"do", "ready"}});
}

void Rig::remove_worker(std::size_t which) {
  workers_[which].kill();
  left_devices_.push_back(devices_[which]);
  workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(which));
  devices_.erase(devices_.begin() + static_cast<std::ptrdiff_t>(which));
}

absl::StatusOr<double> Rig::gpu_memory_taken() const {
  BASCULE_ASSIGN(const std::uint64_t free, model_.gpu()->free_bytes());
  return static_cast<double>(gpu_free_before_) - static_cast<double>(free) - 2.0 * static_cast<double>(slot_bytes_);
}

Rig::~Rig() {
  workers_.clear();
  ranks_ = {};
  sender_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::StatusOr<SendReport> Rig::send_only() {
  BASCULE_ASSIGN(SendReport report, ranks_.empty() ? sender_->send() : send_on_all_ranks());
  if (!report.persisted.ok())
    return annotate(report.persisted, cat("version ", report.version, " is served, but not on the disk"));
  // It also names workers that a scenario removed since the last send.
  const auto serving = std::ranges::count(report.workers, WorkerState::kServing, &WorkerReport::state);
  if (serving != std::ssize(workers_))
    return absl::InternalError(cat("version ", report.version, " is served by ", serving, " workers, expected ",
                                   workers_.size(), ": ", report.why_incomplete()));
  return report;
}

absl::StatusOr<Turn> Rig::send() {
  BASCULE_TRY(step());
  const Clock::time_point start = Clock::now();
  BASCULE_ASSIGN(const SendReport report, send_only());
  const double seconds = seconds_between(start, Clock::now());
  BASCULE_TRY(check());
  return Turn{.seconds = seconds, .stages = stages_of(report, seconds)};
}

absl::StatusOr<std::vector<nlohmann::json>> Rig::ask_all(const nlohmann::json& question) {
  for (Worker& worker : workers_) BASCULE_TRY(worker.ask(question));
  std::vector<nlohmann::json> answers;
  for (Worker& worker : workers_) {
    BASCULE_ASSIGN(nlohmann::json answer, worker.answer());
    answers.push_back(std::move(answer));
  }
  return answers;
}

absl::Status Rig::check() { return ask_all({{"do", "check"}, {"generation", generation_}}).status(); }

absl::StatusOr<Footprint> Rig::footprint_now() {
  // A loan shows its slot's address. Each send frees the other slot, so two rounds show both.
  for (int i = 0; i < 2; ++i) {
    {
      BASCULE_ASSIGN(const WritableSlot slot, sender_->loan());
      if (!slot.tensors().empty()) slots_.insert(slot.tensors().front().data);
    }
    BASCULE_TRY(send().status());
  }
  return footprint(slots_);
}

}  // namespace bascule::bench
