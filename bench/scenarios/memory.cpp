// memory: the memory of a sender and a receiver besides the slots, and the heap allocations of a steady send that grow
// with the model.
#include <algorithm>
#include <cmath>
#include <vector>

#include <bascule/bench/allocations.h>
#include <bascule/bench/memory_need.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/targets.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

void add_count(Context& context, std::string what, std::string unit, double found, std::optional<double> at_most) {
  context.results.counts.push_back({.scheme = context.sync.scheme,
                                    .what = std::move(what),
                                    .unit = std::move(unit),
                                    .found = found,
                                    .at_most = at_most});
}

absl::Status count_memory(Context& context) {
  const Options& options = context.options;
  const ModelShape shape{.bytes = options.bytes, .tensors = options.tensors};
  BASCULE_TRY(check_on_host(context, "a process that uses CUDA holds some 100 MiB of it"));
  BASCULE_TRY(check_rig_fits(context, shape, options.bytes, 0));
  BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, {.model = shape, .workers = options.workers}));
  for (int i = 0; i < 4; ++i) BASCULE_TRY(rig->send().status());
  BASCULE_ASSIGN(const Footprint sender, rig->footprint_now());
  const double beyond = static_cast<double>(sender.rest_rss) - static_cast<double>(rig->footprint_before().rest_rss);
  add_count(context, "sender: memory beyond its slots", "bytes", std::max(0.0, beyond), kMostBeyondSlotsBytes);
  BASCULE_ASSIGN(const auto workers, rig->ask_all({{"do", "footprint"}}));
  const auto most = [&workers](const char* key) {
    double found = 0;
    for (const nlohmann::json& worker : workers) found = std::max(found, worker.at(key).get<double>());
    return found;
  };
  add_count(context, "receiver in place: RSS beyond the mapping, the program included", "bytes", most("rest_rss"),
            kMostBeyondSlotsBytes);
  add_count(context, "receiver in place: PSS beyond the mapping", "bytes", most("rest_pss"), kMostBeyondSlotsBytes);
  add_count(context, "receiver in place: private dirty memory", "bytes", most("rest_private_dirty"),
            kMostBeyondSlotsBytes);
  return absl::OkStatus();
}

// Counts GPU memory, which is taken in allocations of 2 MiB. A worker's context exists before the count.
absl::Status count_gpu_memory(Context& context) {
  const Options& options = context.options;
  const RigOptions without_workers{.model = {.bytes = options.bytes, .tensors = options.tensors}, .workers = 0};
  BASCULE_TRY(check_rig_fits(context, without_workers.model, options.bytes, 0));
  BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, without_workers));
  for (int i = 0; i < 4; ++i) BASCULE_TRY(rig->send().status());
  BASCULE_ASSIGN(const double sender, rig->gpu_memory_taken());
  add_count(context, "sender: GPU memory beyond model and slots", "bytes", sender, kMostOfGpuBeyondSlotsBytes);
  BASCULE_TRY(rig->add_worker(context, without_workers));
  for (int i = 0; i < 4; ++i) BASCULE_TRY(rig->send().status());
  BASCULE_ASSIGN(const nlohmann::json worker, rig->workers().front().call({{"do", "gpu_memory"}}));
  const double taken = worker.at("taken").get<double>();
  if (context.worker_device == context.device) {
    add_count(context, "receiver in place: GPU memory beyond the slots", "bytes", taken, kMostOfGpuBeyondSlotsBytes);
  } else {
    const double copies = 2 * static_cast<double>(rig->slot_bytes());
    add_count(context, "receiver on another GPU: memory there beyond its two copies", "bytes",
              std::max(0.0, taken - copies), kMostOfGpuBeyondSlotsBytes);
  }
  return absl::OkStatus();
}

// Counts GPU memory with slots=1, when the trainer's tensors are in the slot.
absl::Status count_single_copy(Context& context) {
  const Options& options = context.options;
  const ModelShape shape{.bytes = options.bytes, .tensors = options.tensors};
  BASCULE_TRY(check_rig_fits(context, shape, options.bytes, 0));
  BASCULE_ASSIGN(const std::uint64_t before, context.gpu->free_bytes());
  BASCULE_ASSIGN(Model model, Model::make(shape, options.seed, context.pool, context.gpu));
  const std::filesystem::path folder = context.folder / std::to_string(++context.endpoints);
  BASCULE_ASSIGN(Sender sender, Sender::listen({.endpoint = context.sync.endpoint(folder, "slots=1")}));
  BASCULE_TRY(sender.register_model(model.source()));
  model.free_memory();
  BASCULE_TRY(model.step(1));
  BASCULE_ASSIGN(const std::uint64_t after, context.gpu->free_bytes());
  const double models = (static_cast<double>(before) - static_cast<double>(after)) / static_cast<double>(options.bytes);
  // Whole allocations, and the sender's memory besides its slots.
  const double most = 1 + kMostOfGpuBeyondSlotsBytes / static_cast<double>(options.bytes);
  add_count(context, "slots=1: GPU memory of model and slot, in models", "models", std::round(100 * models) / 100,
            std::ceil(100 * most) / 100);
  return absl::OkStatus();
}

// Allocations per version. Both ends allocate for messages, so counts vary: messages that come in one read cost less,
// and a late one counts for the next send.
struct SteadySends {
  std::vector<double> sender, worker;
};

// Returns how many more allocations every send of `of` makes than nearly all sends of `base`.
double growth(const std::vector<double>& of, const std::vector<double>& base) {
  return std::max(0.0, quantile(of, 0) - quantile(base, 0.9));
}

// Counted from one send to the next: a worker's last message on a version comes after the send has returned.
absl::StatusOr<SteadySends> steady_sends(Context& context, std::uint64_t bytes, std::uint64_t tensors) {
  BASCULE_ASSIGN(const std::unique_ptr<Rig> rig,
                 Rig::make(context, {.model = {.bytes = bytes, .tensors = tensors}, .workers = 1}));
  SteadySends sends;
  double sender_before = 0;
  constexpr int kFirst = 5, kSends = 21;
  for (int i = 0; i < kFirst + kSends; ++i) {
    context.progress(cat(tensors, " tensors, ", shown_bytes(static_cast<double>(bytes))));
    const std::uint64_t before_step = allocations().count;
    BASCULE_TRY(rig->step());  // launches kernels, on a GPU
    sender_before += static_cast<double>(allocations().count - before_step);
    BASCULE_TRY(rig->send_only().status());
    BASCULE_TRY(rig->check());
    BASCULE_ASSIGN(const nlohmann::json answer, rig->workers().front().call({{"do", "allocations"}}));
    const auto sender_now = static_cast<double>(allocations().count);
    if (i >= kFirst) {
      sends.sender.push_back(sender_now - sender_before);
      sends.worker.push_back(answer.at("count").get<double>());
    }
    sender_before = sender_now;
  }
  return sends;
}

absl::Status count_allocations(Context& context) {
  constexpr std::uint64_t kSmall = 1 << 20, kLarge = 64 << 20;
  BASCULE_ASSIGN(const SteadySends base, steady_sends(context, kSmall, 10));
  BASCULE_ASSIGN(const SteadySends tensors, steady_sends(context, kSmall, 10'000));
  BASCULE_ASSIGN(const SteadySends bytes, steady_sends(context, kLarge, 10));
  const std::string unit = "allocations";
  add_count(context, "heap allocations of a steady send, sender", unit, quantile(base.sender, 0.5), std::nullopt);
  add_count(context, "the same of 10,000 tensors over 10", unit, growth(tensors.sender, base.sender), 0);
  add_count(context, "the same of 64 MiB over 1 MiB", unit, growth(bytes.sender, base.sender), 0);
  add_count(context, "receiver: of 10,000 tensors over 10", unit, growth(tensors.worker, base.worker), 0);
  add_count(context, "receiver: of 64 MiB over 1 MiB", unit, growth(bytes.worker, base.worker), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status run_memory(Context& context) {
  if (context.gpu && context.slots_on_gpu) {
    BASCULE_TRY(count(context, "GPU memory beyond the slots", [&] { return count_gpu_memory(context); }));
    BASCULE_TRY(count(context, "a single copy on a GPU", [&] { return count_single_copy(context); }));
  }
  BASCULE_TRY(count(context, "memory beyond the slots", [&] { return count_memory(context); }));
  return count(context, "heap allocations of a steady send", [&] { return count_allocations(context); });
}

}  // namespace bascule::bench
