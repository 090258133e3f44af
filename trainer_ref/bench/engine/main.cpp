// bascule-bench-engine: the times of the reference engine's steps, compared with what the machine could do.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <future>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/bench/engine/load.h>
#include <bascule/trainer_ref/bench/engine/report.h>
#include <bascule/trainer_ref/bench/engine/step_bench.h>
#include <bascule/trainer_ref/engine/compute/cache_attention.h>
#include <bascule/trainer_ref/engine/http/http_server.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/numbers.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/descriptors.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

ABSL_FLAG(std::string, model, "trainer_ref/bench/engine/qwen3-0.6b",
          "A folder with a config.json; its weights are not read.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda:N, or auto.");
ABSL_FLAG(std::string, dtype, "bf16", "Type of weights and cache: f32 or bf16.");
ABSL_FLAG(
    std::vector<std::string>, what, std::vector<std::string>({"decode", "prefill", "engine", "http", "pause"}),
    "What is measured: decode (steps of one token per row), prefill (prompts whole, one and 8,192 tokens of them), "
    "engine (requests to the engine in this process), http (the same requests over HTTP), pause (the longest time "
    "between two tokens while a long "
    "prompt comes).");
ABSL_FLAG(std::vector<std::string>, rows, std::vector<std::string>({"1", "16", "64", "256"}),
          "Sequences that generate at once.");
ABSL_FLAG(std::vector<std::string>, contexts, std::vector<std::string>({"128", "1024", "8192"}),
          "Tokens of each sequence in the rows of decode.");
ABSL_FLAG(std::vector<std::string>, prompts, std::vector<std::string>({"128", "1024", "8192"}),
          "Tokens of the prompts of prefill; pause uses the last number.");
ABSL_FLAG(int, prompt_tokens, 64, "Tokens of each prompt of engine and http.");
ABSL_FLAG(int, generated_tokens, 128, "Tokens that each request of engine and http generates.");
ABSL_FLAG(int, max_step_tokens, 1024, "As bascule-engine's.");
ABSL_FLAG(int, adapters, 0, "Adapters that sequences have in turns; http is measured without.");
ABSL_FLAG(int, adapter_rank, 16, "The rank of each; all linear modules of all layers are adapted.");
ABSL_FLAG(int, repeat, 30, "Counted steps for each row of decode and prefill.");
ABSL_FLAG(int, threads, 0, "Threads that compute on a CPU; 0: one per core.");
ABSL_FLAG(bascule::ByteSize, cache_bytes, bascule::ByteSize{0},
          "Memory of the key/value cache; 0: 1GiB, or 32GiB on a GPU. Rows that do not fit are left out, and named.");
ABSL_FLAG(std::string, json, "", "A file for all figures, as JSON.");

namespace bascule::bench {
namespace {

constexpr std::int64_t kManyTokens = 8192;  // of short prompts together

std::int64_t rows_of_many(std::int64_t tokens) { return std::max<std::int64_t>(1, kManyTokens / tokens); }

const ProgramInfo& program() {
  static const ProgramInfo info{
      .name = "bascule-bench-engine",
      .summary =
          "measures the reference engine: decode steps, prompts, and requests, with random weights of a model's\n"
          "shape. The limit is what must be read once, at the rate of a copy, or multiplied, at the rate of a\n"
          "large matrix product, whichever takes longer; both rates are measured first, on the same device."};
  return info;
}

struct Settings {
  EngineShape shape;
  std::vector<std::int64_t> rows, contexts, prompts;
};

absl::StatusOr<std::vector<std::int64_t>> numbers_of(const char* flag, const std::vector<std::string>& words) {
  std::vector<std::int64_t> numbers;
  for (const std::string& word : words) {
    const std::optional<int> number = plain_number(word, 1, std::numeric_limits<int>::max());
    if (!number)
      return invalid_argument("--", flag, "=", word, ": expected numbers of 1 or more, as --", flag, "=1,16");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<Settings> settings_from_flags() {
  FlagChecks checks;
  checks.one_of("dtype", absl::GetFlag(FLAGS_dtype), {"f32", "bf16"})
      .between("prompt-tokens", absl::GetFlag(FLAGS_prompt_tokens), 1, 1 << 20)
      .between("generated-tokens", absl::GetFlag(FLAGS_generated_tokens), 2, 1 << 20)
      .between("repeat", absl::GetFlag(FLAGS_repeat), 1, 1 << 20)
      .between("adapters", absl::GetFlag(FLAGS_adapters), 0, 4096)
      .between("adapter-rank", absl::GetFlag(FLAGS_adapter_rank), 1, 512)
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024);
  for (const std::string& what : absl::GetFlag(FLAGS_what))
    checks.one_of("what", what, {"decode", "prefill", "engine", "http", "pause"});
  BASCULE_TRY(checks.status());
  Settings settings;
  BASCULE_ASSIGN(settings.rows, numbers_of("rows", absl::GetFlag(FLAGS_rows)));
  BASCULE_ASSIGN(settings.contexts, numbers_of("contexts", absl::GetFlag(FLAGS_contexts)));
  BASCULE_ASSIGN(settings.prompts, numbers_of("prompts", absl::GetFlag(FLAGS_prompts)));
  EngineShape& shape = settings.shape;
  BASCULE_ASSIGN(const c10::Device device,
                 ref::open_torch_device(absl::GetFlag(FLAGS_device), [](std::string_view) {}));
  shape.place = ref::Place::on(device);
  shape.dtype = absl::GetFlag(FLAGS_dtype) == "f32" ? DType::kF32 : DType::kBF16;
  shape.adapters = absl::GetFlag(FLAGS_adapters);
  shape.adapter_rank = absl::GetFlag(FLAGS_adapter_rank);
  const std::string folder = absl::GetFlag(FLAGS_model);
  absl::StatusOr<ref::ModelConfig> config = ref::read_config(folder);
  BASCULE_TRY(
      of_flag(config.status(), "model", folder, "give a folder with a config.json, as --model=trainer_ref/demo"));
  shape.config = *std::move(config);
  const ByteSize asked = absl::GetFlag(FLAGS_cache_bytes);
  const std::int64_t bytes = asked.bytes > 0 ? asked.bytes : std::int64_t{device.is_cpu() ? 1 : 32} << 30;
  const std::int64_t block = ref::block_bytes(shape.config, shape.dtype == DType::kF32 ? at::kFloat : at::kBFloat16);
  shape.blocks = static_cast<std::size_t>(bytes / block);
  shape.most_rows = std::max(std::ranges::max(settings.rows), rows_of_many(std::ranges::min(settings.prompts)));
  shape.longest = std::max({std::ranges::max(settings.contexts), std::ranges::max(settings.prompts) + kBesideTokens,
                            kPausedPromptTokens + kPausedTokens,
                            std::int64_t{absl::GetFlag(FLAGS_prompt_tokens)} + absl::GetFlag(FLAGS_generated_tokens)});
  return settings;
}

bool measures(const char* what) {
  const auto asked = absl::GetFlag(FLAGS_what);
  return std::find(asked.begin(), asked.end(), what) != asked.end();
}

// Leaves out what does not fit into the cache, and names it.
absl::Status measure_steps(const Settings& settings, ref::Runner& runner, Report& report) {
  const int repeat = absl::GetFlag(FLAGS_repeat);
  const auto add = [&](Measured row, absl::StatusOr<std::vector<double>> seconds) {
    if (absl::IsResourceExhausted(seconds.status())) {
      absl::FPrintF(stderr, "%s, %d rows, %d tokens: left out, %s\n", row.what, row.rows, row.tokens,
                    message_of(seconds.status()));
      return absl::OkStatus();
    }
    BASCULE_TRY(seconds.status());
    row.seconds = *std::move(seconds);
    report.add(std::move(row));
    return absl::OkStatus();
  };
  for (const std::int64_t context : measures("decode") ? settings.contexts : std::vector<std::int64_t>{})
    for (const std::int64_t rows : settings.rows)
      BASCULE_TRY(add({.what = "decode",
                       .rows = rows,
                       .tokens = context,
                       .limit_seconds = report.limit(decode_cost(settings.shape, rows, context)),
                       .made = static_cast<double>(rows)},
                      time_decode(settings.shape, runner, rows, context, repeat)));
  for (const std::int64_t tokens : measures("prefill") ? settings.prompts : std::vector<std::int64_t>{})
    for (const std::int64_t rows : std::set{std::int64_t{1}, rows_of_many(tokens)})
      BASCULE_TRY(add({.what = "prefill",
                       .rows = rows,
                       .tokens = tokens,
                       .limit_seconds = report.limit(prefill_cost(settings.shape, rows, tokens)),
                       .made = static_cast<double>(rows * tokens)},
                      time_prefill(settings.shape, runner, rows, tokens, repeat)));
  return absl::OkStatus();
}

// An engine and its server over a runner.
class Serving {
 public:
  static absl::StatusOr<std::unique_ptr<Serving>> start(const EngineShape& shape, std::unique_ptr<ref::Runner> runner) {
    std::unique_ptr<Serving> serving(new Serving(shape));
    ref::ModelCard card;
    card.id = "bench";
    card.vocab_size = shape.config.vocab_size;
    card.max_model_len = shape.longest;
    card.max_batch = shape.most_rows;
    ref::HttpServerOptions options;
    options.connections.most = 4096;
    options.stop_signals = {kStop};
    BASCULE_ASSIGN(serving->server_, ref::HttpServer::listen(std::move(options), serving->engine_, std::move(card)));
    serving->engine_.start(std::move(runner));
    for (std::int64_t i = 0; i < shape.adapters; ++i) {  // as those that the runner has
      BASCULE_ASSIGN(auto adapter, random_adapter(shape, static_cast<std::uint64_t>(i)));
      std::promise<absl::Status> loaded;
      serving->engine_.load_adapter({.name = cat("adapter-", i), .source = "random"}, /*in_place=*/false,
                                    std::move(adapter),
                                    [&loaded](const absl::Status& status) { loaded.set_value(status); });
      BASCULE_TRY(loaded.get_future().get());
    }
    const auto is_ready = [](const ref::AdapterEntry& entry) { return entry.served.ready; };
    while (!std::ranges::all_of(serving->engine_.adapters().all(), is_ready))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    serving->thread_ = std::thread([server = serving->server_.get()] { server->run(); });
    return serving;
  }
  ~Serving() {
    if (thread_.joinable()) {
      std::raise(kStop);
      thread_.join();
    }
    engine_.stop();
  }
  ref::Engine& engine() { return engine_; }
  const std::string& url() const { return server_->url(); }

 private:
  static constexpr int kStop = SIGUSR1;
  static ref::SchedulerLimits limits(const EngineShape& shape) {
    const auto rows = static_cast<std::size_t>(shape.most_rows);
    return {.max_batch = rows,
            .max_step_tokens = std::max(rows, static_cast<std::size_t>(absl::GetFlag(FLAGS_max_step_tokens)))};
  }
  explicit Serving(const EngineShape& shape) : engine_({.limits = limits(shape), .blocks = shape.blocks}) {}

  ref::Engine engine_;
  std::unique_ptr<ref::HttpServer> server_;
  std::thread thread_;
};

// Sends requests of `rows` sequences at once. Measures the time of one generating step, and the time until the last
// answer.
absl::Status measure_requests(const Settings& settings, std::int64_t rows, Serving& serving, Report& report) {
  const EngineShape& shape = settings.shape;
  const std::int64_t prompt = absl::GetFlag(FLAGS_prompt_tokens), generated = absl::GetFlag(FLAGS_generated_tokens);
  static std::uint64_t seed = 0;
  const auto load = [&](std::int64_t tokens) {
    seed += 1000;
    return Load{.requests = rows,
                .prompt_tokens = prompt,
                .generated_tokens = tokens,
                .vocabulary = shape.config.vocab_size,
                .adapters = shape.adapters,
                .seed = seed};
  };
  const double step_limit = report.limit(decode_cost(shape, rows, prompt + generated / 2));
  const double prompts_limit = report.limit({.operations = prefill_cost(shape, rows, prompt).operations});
  const Measured requests{.rows = rows,
                          .tokens = prompt + generated,
                          .limit_seconds = prompts_limit + static_cast<double>(generated) * step_limit,
                          .made = static_cast<double>(rows * generated)};
  for (int warm_up = 0; warm_up < 2; ++warm_up)  // graphs are recorded when a shape comes again
    BASCULE_TRY(time_requests(serving.engine(), load(generated)).status());
  if (measures("engine")) {
    BASCULE_ASSIGN(const double first, time_requests(serving.engine(), load(1)));
    BASCULE_ASSIGN(const double all, time_requests(serving.engine(), load(generated)));
    report.add({.what = "engine: a step",
                .rows = rows,
                .tokens = prompt + generated / 2,
                .seconds = {(all - first) / static_cast<double>(generated - 1)},
                .limit_seconds = step_limit,
                .made = static_cast<double>(rows)});
    Measured row = requests;
    row.what = "engine: requests";
    row.seconds = {all};
    report.add(std::move(row));
  }
  if (measures("http")) {
    Measured row = requests;
    row.what = "http: requests";
    BASCULE_ASSIGN(row.seconds.emplace_back(), time_http_requests(serving.url(), load(generated)));
    report.add(std::move(row));
  }
  return absl::OkStatus();
}

absl::Status measure_serving(const Settings& settings, std::unique_ptr<ref::Runner> runner, Report& report) {
  BASCULE_ASSIGN(const auto serving, Serving::start(settings.shape, std::move(runner)));
  if (measures("engine") || measures("http"))
    for (const std::int64_t rows : settings.rows) BASCULE_TRY(measure_requests(settings, rows, *serving, report));
  if (!measures("pause")) return absl::OkStatus();
  const std::int64_t rows = std::min<std::int64_t>(64, std::ranges::max(settings.rows));
  const std::int64_t prompt = settings.prompts.back();
  BASCULE_ASSIGN(const double worst,
                 worst_pause_beside_prompt(serving->engine(), rows, prompt, settings.shape.config.vocab_size));
  report.add({.what = "longest pause beside a prompt", .rows = rows, .tokens = prompt, .seconds = {worst}});
  return absl::OkStatus();
}

absl::Status measure(const Settings& settings) {
  const std::string file = absl::GetFlag(FLAGS_json);
  if (!file.empty()) BASCULE_TRY(check_output(file));  // before a minute of work
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads > 0) at::set_num_threads(threads);
  const Rates rates = measure_rates(settings.shape.place, settings.shape.dtype);
  std::printf("%s, %s: a copy moves %.0f GB/s, a matrix product computes %.3g Tflop/s\n\n",
              settings.shape.place.device.str().c_str(), absl::GetFlag(FLAGS_dtype).c_str(),
              rates.bytes_per_second / 1e9, rates.operations_per_second / 1e12);
  Report report(rates);
  BASCULE_ASSIGN(std::unique_ptr<ref::Runner> runner, make_runner(settings.shape));
  BASCULE_TRY(measure_steps(settings, *runner, report));
  if (measures("engine") || measures("http") || measures("pause"))
    BASCULE_TRY(measure_serving(settings, std::move(runner), report));
  std::printf("%s", report.table().c_str());
  return file.empty() ? absl::OkStatus() : write_output(file, cat(report.json(), "\n"));
}

}  // namespace
}  // namespace bascule::bench

int main(int argc, char** argv) {
  using namespace bascule;
  let_writes_fail();
  raise_descriptor_limit();
  parse_flags_or_exit(bench::program(), argc, argv);
  const absl::StatusOr<bench::Settings> settings = bench::settings_from_flags();
  if (!settings.ok()) refuse(bench::program(), settings.status());
  const absl::Status status = bench::measure(*settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-bench-engine: %s\n", std::string(message_of(status)).c_str());
  return 1;
}
