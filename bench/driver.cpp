#include <bascule/bench/driver.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <bascule/bench/scenario.h>
#include <bascule/sender/endpoint_facts.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr std::string_view kFailed = "failed: ";

// On a terminal, one line that is overwritten; elsewhere one line per scenario.
class ProgressLine {
 public:
  void begin(std::string head) {
    head_ = std::move(head);
    if (!terminal_) std::fprintf(stderr, "%s\n", head_.c_str());
  }
  void at(std::string_view where) const {
    if (terminal_)
      std::fprintf(stderr, "\r\033[K%s: %.*s", head_.c_str(), static_cast<int>(where.size()), where.data());
  }
  void end() const {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string head_;
};

}  // namespace

absl::StatusOr<Results> run_all(const Options& options, const std::vector<std::filesystem::path>& folders) {
  Results results{.machine = this_machine(options.folder),
                  .seed = options.seed,
                  .command = options.command,
                  .records = {},
                  .counts = {}};
  kernels::ThreadPool pool(options.threads);
  ProgressLine line;
  for (std::size_t i = 0; i < options.sync.size(); ++i) {
    const Sync& sync = options.sync[i];
    BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(sync.endpoint("/run", "")));
    const bool slots_on_gpu = keeps_slots_on_gpu(endpoint);
    const int device = options.device.value_or(slots_on_gpu ? 0 : kHost);
    Context context{.options = options,
                    .sync = sync,
                    .pool = pool,
                    .device = device,
                    .worker_device = options.worker_devices.empty() ? device : options.worker_devices.front(),
                    .slots_on_gpu = slots_on_gpu,
                    .gpu = nullptr,
                    .folder = folders[i],
                    .progress = [&line](std::string_view where) { line.at(where); },
                    .results = results};
    if (device != kHost) {
      absl::StatusOr<std::shared_ptr<Gpu>> gpu = Gpu::open(device);
      if (!gpu.ok()) {
        Record skipped = record_of(context, "all");
        skipped.skipped = std::string(message_of(gpu.status()));
        results.records.push_back(std::move(skipped));
        continue;
      }
      context.gpu = *std::move(gpu);
      results.machine.facts["gpu"] = context.gpu->name();
    }
    for (const std::string& name : options.scenarios) {
      const auto scenario = std::ranges::find(all_scenarios(), name, &Scenario::name);
      line.begin(cat(sync.scheme, " ", name));
      const absl::Status status = scenario->run(context);
      line.end();
      if (status.ok()) continue;
      // The other rows are still useful; the program's exit status reports this one.
      Record failed = record_of(context, name);
      failed.skipped = cat(kFailed, message_of(status));
      results.records.push_back(std::move(failed));
    }
  }
  return results;
}

std::string failure_of(const Results& results) {
  for (const Record& record : results.records)
    if (record.skipped.starts_with(kFailed)) return cat(record.scheme, " ", record.scenario, ": ", record.skipped);
  return "";
}

}  // namespace bascule::bench
