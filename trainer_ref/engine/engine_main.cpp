// bascule-engine: generates with a checkpoint's weights, or with those that a trainer sends.
#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <thread>

#include "absl/flags/flag.h"
#include "trainer_ref/engine/http_server.h"
#include "trainer_ref/engine/torch_runner.h"
#include "trainer_ref/model/tokenizer.h"
#include "trainer_ref/program/byte_size.h"
#include "trainer_ref/program/checks.h"
#include "trainer_ref/program/flags.h"
#include "trainer_ref/program/torch_device.h"
#include "transport/text.h"

ABSL_FLAG(std::string, model, "", "Folder of a Hugging Face checkpoint: config.json, *.safetensors, tokenizer.json.");
ABSL_FLAG(std::string, sync, "",
          "Where a trainer sends weights from, as in shm:///run/user/1000/grpo. Without it the checkpoint's "
          "own are "
          "served, as version 0.");
ABSL_FLAG(std::string, worker, "engine", "This engine's name at --sync, unique among its engines.");
ABSL_FLAG(std::string, listen, "127.0.0.1:8000", "HOST:PORT of the HTTP server; port 0 lets the system choose.");
ABSL_FLAG(std::string, device, "cpu",
          "Where to compute: cpu, or cuda:N, a GPU by the number that this process sees it under (cuda: the first). "
          "Weights that come over cuda-ipc from the same GPU are read where they lie, from another in copies here.");
ABSL_FLAG(std::string, graphs, "auto",
          "Replay steps that generate as CUDA graphs: on, off, or auto (on with a GPU, where this build has them).");
ABSL_FLAG(std::string, dtype, "f32", "Type of weights and cache: f32 or bf16. A trainer must send the same.");
ABSL_FLAG(
    int, threads, 0,
    "Threads that compute; 0: one per core, or half of them with --sync, since a trainer computes, too. Threads of "
    "several programs that share a core cost far more than they bring.");
ABSL_FLAG(int, max_batch, 256, "Sequences that run at once; also the most completions (n) of one prompt.");
ABSL_FLAG(int, max_step_tokens, 1024, "Tokens computed in one step; longer prompts are computed in pieces.");
ABSL_FLAG(int, max_model_len, 0,
          "Tokens of one sequence, prompt and completion; 0: what the model allows, or what fits into the cache.");
ABSL_FLAG(int, max_waiting, 4096, "Sequences that may wait to run; beyond them requests are answered 429.");
ABSL_FLAG(int, max_choices, 1024, "Prompts times n in one request.");
ABSL_FLAG(
    bascule::ref::ByteSize, cache_bytes, bascule::ref::ByteSize{0},
    "Memory of the key/value cache; 0: 256MiB, or 4GiB of a GPU. It is given back by POST /sleep, until /wake_up.");
ABSL_FLAG(bascule::ref::ByteSize, max_body_bytes, bascule::ref::ByteSize{8 << 20}, "The largest body of a request.");
ABSL_FLAG(std::string, on_update, "keep",
          "What running requests do when the weights change: keep (go on with the new ones) or abort (end "
          "with what "
          "they have).");
ABSL_FLAG(double, drain_seconds, 30, "On SIGTERM, how long running requests may take to finish.");
ABSL_FLAG(bool, verbose, false, "Print a line to stderr for each flip and each failure.");

namespace bascule::ref {
namespace {

const ProgramInfo kProgram{
    .name = "bascule-engine",
    .summary =
        "generates text with a decoder, over HTTP.\n\n"
        "Serves OpenAI's /v1/completions, /v1/models, /health and /metrics, and /sleep, /wake_up and /is_sleeping,\n"
        "by which it lends its cache's memory to a trainer. With --sync it takes its weights "
        "from a trainer\nand flips to each new version between two tokens. Prints its address to stdout once "
        "it "
        "listens; /health is 503\nuntil a version is served. SIGTERM lets running requests finish."};

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

absl::StatusOr<Address> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  if (colon != std::string::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data() + colon + 1, end, address.port);
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    if (failure == std::errc{} && stop == end) return address;
  }
  return invalid_argument("--listen=", text, ": expected HOST:PORT, as in 127.0.0.1:8000");
}

absl::Status check_flags() {
  const std::string on_update = absl::GetFlag(FLAGS_on_update), graphs = absl::GetFlag(FLAGS_graphs);
  FlagChecks checks;
  checks.not_empty("model", absl::GetFlag(FLAGS_model), "the folder of a checkpoint")
      .not_empty("worker", absl::GetFlag(FLAGS_worker), "a name")
      .one_of("graphs", graphs, {"auto", "on", "off"})
      .that(graphs != "on" || absl::GetFlag(FLAGS_device) != "cpu", "graphs", graphs,
            "a CPU replays none; give auto or off, or --device=cuda")
      .one_of("dtype", absl::GetFlag(FLAGS_dtype), {"f32", "bf16"})
      .that(on_update != "wait", "on-update", on_update, "this version does not wait; give keep or abort")
      .one_of("on-update", on_update, {"keep", "abort"})
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024)
      .between("max-batch", absl::GetFlag(FLAGS_max_batch), 1, 65536)
      .at_least("max-step-tokens", absl::GetFlag(FLAGS_max_step_tokens), absl::GetFlag(FLAGS_max_batch))
      .at_least("max-model-len", absl::GetFlag(FLAGS_max_model_len), 0)
      .at_least("max-waiting", absl::GetFlag(FLAGS_max_waiting), 0)
      .at_least("max-choices", absl::GetFlag(FLAGS_max_choices), 1)
      .at_least("max-body-bytes", absl::GetFlag(FLAGS_max_body_bytes).bytes, std::int64_t{1024})
      .between("drain-seconds", absl::GetFlag(FLAGS_drain_seconds), 0.0, 86400.0);
  return checks.status();
}

int threads() {
  if (const int asked = absl::GetFlag(FLAGS_threads); asked > 0) return asked;
  const int processes = absl::GetFlag(FLAGS_sync).empty() ? 1 : 2;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / processes);
}

// Blocks that --cache-bytes pays for, and the longest sequence: both follow from the model.
struct CacheSize {
  std::int64_t blocks = 0, max_model_len = 0;
};

ByteSize cache_bytes(at::Device device) {
  const ByteSize asked = absl::GetFlag(FLAGS_cache_bytes);
  if (asked.bytes > 0) return asked;
  return {device.is_cpu() ? std::int64_t{256} << 20 : std::int64_t{4} << 30};
}

absl::StatusOr<CacheSize> size_cache(const ModelConfig& config, at::ScalarType dtype, at::Device device) {
  const std::int64_t bytes = block_bytes(config, dtype), tokens = kBlockTokens;
  CacheSize size;
  size.blocks = std::min<std::int64_t>(cache_bytes(device).bytes / bytes, std::numeric_limits<BlockId>::max());
  const std::int64_t asked = absl::GetFlag(FLAGS_max_model_len);
  size.max_model_len = asked > 0 ? asked : std::min(config.max_position_embeddings, size.blocks * tokens);
  FlagChecks checks;
  checks
      .that(asked <= config.max_position_embeddings, "max-model-len", asked,
            cat("the model's positions end at ", config.max_position_embeddings))
      .that(size.blocks > 0 && size.max_model_len <= size.blocks * tokens, "cache-bytes",
            AbslUnparseFlag(cache_bytes(device)),
            cat("one sequence of ", std::max(size.max_model_len, tokens), " tokens needs ",
                (std::max(size.max_model_len, tokens) + tokens - 1) / tokens * bytes, " bytes or more"));
  if (!checks.status().ok()) return checks.status();
  return size;
}

// None where steps are to run without graphs.
absl::StatusOr<std::unique_ptr<GraphRecorder>> recorder_for(at::Device device) {
  const std::string graphs = absl::GetFlag(FLAGS_graphs);
  if (graphs == "off" || device.is_cpu()) return nullptr;
  absl::StatusOr<std::unique_ptr<GraphRecorder>> recorder = open_graph_recorder();
  if (recorder.ok() || graphs == "on") return recorder;
  std::fprintf(stderr, "bascule-engine: generates without graphs: %s\n", recorder.status().ToString().c_str());
  return nullptr;
}

ModelCard describe(const std::filesystem::path& folder, const ModelConfig& config, const CacheSize& cache,
                   at::Device device) {
  ModelCard card;
  card.id = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  card.vocab_size = config.vocab_size;
  card.eos_token_ids = config.eos_token_ids;
  card.max_model_len = cache.max_model_len;
  card.max_batch = absl::GetFlag(FLAGS_max_batch);
  card.max_choices = absl::GetFlag(FLAGS_max_choices);
  card.worker = absl::GetFlag(FLAGS_worker);
  card.device = device.str();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(folder);
  if (tokenizer.ok()) {
    card.encode = [text = *tokenizer](std::string_view words) { return text.encode(words); };
    card.decode = [text = *tokenizer](std::span<const std::int64_t> ids) { return text.decode(ids); };
  } else {
    card.no_text = tokenizer.status();
    std::fprintf(stderr, "bascule-engine: serves token ids only: %s\n", tokenizer.status().ToString().c_str());
  }
  return card;
}

absl::Status serve() {
  BASCULE_TRY(check_flags());
  BASCULE_ASSIGN(const Address address, parse_address(absl::GetFlag(FLAGS_listen)));
  BASCULE_ASSIGN(const c10::Device device, open_torch_device(absl::GetFlag(FLAGS_device)));
  at::set_num_threads(threads());

  const std::filesystem::path folder = absl::GetFlag(FLAGS_model);
  const bool bf16 = absl::GetFlag(FLAGS_dtype) == "bf16";
  const DType dtype = bf16 ? DType::kBF16 : DType::kF32;
  const at::ScalarType type = bf16 ? at::kBFloat16 : at::kFloat;
  BASCULE_ASSIGN(const ModelConfig config, read_config(folder));
  BASCULE_ASSIGN(const CacheSize cache, size_cache(config, type, device));

  EngineOptions options;
  options.limits = {.max_batch = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_batch)),
                    .max_step_tokens = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_step_tokens))};
  options.blocks = static_cast<std::size_t>(cache.blocks);
  options.max_waiting = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_waiting));
  options.on_update = absl::GetFlag(FLAGS_on_update) == "abort" ? OnUpdate::kAbort : OnUpdate::kKeep;
  if (absl::GetFlag(FLAGS_verbose))
    options.log = [name = absl::GetFlag(FLAGS_worker)](std::string_view line) {
      std::fprintf(stderr, "%s: %.*s\n", name.c_str(), static_cast<int>(line.size()), line.data());
    };
  Engine engine(options);

  HttpServerOptions server_options;
  server_options.host = address.host;
  server_options.port = address.port;
  server_options.max_body_bytes = static_cast<std::uint64_t>(absl::GetFlag(FLAGS_max_body_bytes).bytes);
  server_options.drain = absl::Seconds(absl::GetFlag(FLAGS_drain_seconds));
  // Bound before the weights are read: an address that is taken should not cost that wait.
  BASCULE_ASSIGN(const std::unique_ptr<HttpServer> server,
                 HttpServer::listen(server_options, engine, describe(folder, config, cache, device)));

  RunnerOptions runner_options{.blocks = options.blocks, .dtype = type, .place = Place::on(device)};
  BASCULE_ASSIGN(runner_options.recorder, recorder_for(device));
  constexpr auto kTokens = static_cast<std::int64_t>(kBlockTokens);
  runner_options.decode = {.rows = static_cast<std::int64_t>(options.limits.max_batch),
                           .blocks = (cache.max_model_len + kTokens - 1) / kTokens};
  runner_options.log = options.log;
  const std::string sync = absl::GetFlag(FLAGS_sync);
  BASCULE_ASSIGN(std::unique_ptr<ServedWeights> weights,
                 sync.empty() ? ServedWeights::from_checkpoint(folder, config, dtype, runner_options.place)
                              : ServedWeights::from_sender(config, dtype,
                                                           {.endpoint = sync,
                                                            .worker = absl::GetFlag(FLAGS_worker),
                                                            .on_pending = [&engine] { engine.wake(); },
                                                            .log = options.log,
                                                            .place = runner_options.place}));
  std::unique_ptr<TorchRunner> runner;
  try {
    runner = std::make_unique<TorchRunner>(config, std::move(runner_options), std::move(weights));
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(cat("the cache on ", device.str(), ": ", error.what_without_backtrace()));
  }
  engine.start(std::move(runner));
  std::printf("listening on %s\n", server->url().c_str());
  std::fflush(stdout);
  server->run();
  engine.stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace bascule::ref

int main(int argc, char** argv) {
  bascule::ref::parse_flags_or_exit(bascule::ref::kProgram, argc, argv);
  const absl::Status status = bascule::ref::serve();
  if (!status.ok()) bascule::ref::refuse(bascule::ref::kProgram, status);
  return 0;
}
