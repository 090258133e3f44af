#include <bascule/trainer_ref/engine/settings.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include <bascule/kernels/control_group.h>
#include <bascule/sender/endpoint_facts.h>
#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/engine/cache_size.h>
#include <bascule/trainer_ref/engine/http/api_key.h>
#include <bascule/trainer_ref/engine/http/generation_config.h>
#include <bascule/trainer_ref/engine/http/origins.h>
#include <bascule/trainer_ref/http/http_listener.h>
#include <bascule/trainer_ref/model/decoder_weights.h>
#include <bascule/trainer_ref/program/bridge_config.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/repeated.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

ABSL_FLAG(std::string, model, "", "Folder of a Hugging Face checkpoint: config.json, *.safetensors, tokenizer.json.");
ABSL_FLAG(
    std::string, sync, "",
    "The endpoint of a trainer that sends weights, such as shm:///run/user/1000/grpo. Without it the engine serves the "
    "checkpoint's own weights, as version 0.");
ABSL_FLAG(std::string, until_first, "none",
          "What is served until the first version of --sync has come: none (requests are answered 503), or checkpoint "
          "(the weights of --model, as version 0), as vLLM does and TRL's clients expect.");
ABSL_FLAG(
    std::string, base, "",
    "The endpoint of a base, such as shm:///run/user/1000/grpo/base: one copy of --model's weights, which all "
    "processes "
    "of this host with this flag map. The first one reads the checkpoint. For an engine that serves adapters beside a "
    "trainer.");
ABSL_FLAG(
    bascule::Repeated, adapter, {},
    "A LoRA adapter of --model to serve, as NAME=SOURCE: requests name it as their model. SOURCE is a folder of "
    "PEFT, or the endpoint of a trainer, such as shm:///run/user/1000/grpo/math, of which each version is followed. "
    "May be given several times.");
ABSL_FLAG(
    std::string, adapters, "",
    "A folder of adapters, or the URL of a folder of endpoints, such as shm:///run/user/1000/grpo/adapters: those "
    "in it are loaded as they appear, and unloaded as they go.");
ABSL_FLAG(std::string, active_adapter, "",
          "The name of an --adapter that requests get which name the model itself, or none, as after POST "
          "/set_lora_adapter. For clients that cannot name an adapter.");
ABSL_FLAG(int, max_adapters, 8,
          "The most adapters that are loaded at once, also by POST /v1/load_lora_adapter; 0: none can be.");
ABSL_FLAG(int, max_adapter_rank, 512, "The highest rank of an adapter.");
ABSL_FLAG(std::string, worker, "engine", "This engine's name at --sync, unique among its engines: 1 to 255 bytes.");
ABSL_FLAG(std::string, listen, "127.0.0.1:8000", "HOST:PORT of the HTTP server; port 0 lets the system choose.");
ABSL_FLAG(std::vector<std::string>, served_model_name, {},
          "Names by which requests may call the model; answers use the first. Without it: the folder's name, or "
          "ORG/NAME of a "
          "folder of Hugging Face's cache. Requests may always name the folder as given to --model.");
ABSL_FLAG(std::vector<std::string>, allowed_origins, {},
          "Origins of web pages that may use the engine, as https://chat.example.com, or *. Without it: all if clients "
          "need a "
          "key, else only pages of this machine, as http://localhost:3000.");
ABSL_FLAG(
    std::string, bridge_config, "",
    "A file to write for a trainer on this host that looks for its engine there: the engine's URL and --sync. Without "
    "it, none; but with VLLM_ENABLE_SHARED_WEIGHTS=1 vllm_bridge_config.json where scripts for Atropos' example "
    "trainer expect it (docs/guide/atropos.md). It is removed when the engine ends.");
ABSL_FLAG(std::string, device, "cpu",
          "Where to compute: cpu; cuda:N, a GPU by its number in this process (cuda: the first); or auto, the first "
          "GPU if this build and this machine have one, else the CPU (stderr says which). Weights that come over "
          "cuda-ipc from the same GPU are read in place; weights from another GPU are read as copies on this one.");
ABSL_FLAG(std::string, graphs, "auto",
          "Replay decode steps as CUDA graphs: on, off, or auto (on with a GPU, if this build has them).");
ABSL_FLAG(std::string, dtype, "f32", "Type of weights and cache: f32 or bf16. A trainer must send the same.");
ABSL_FLAG(
    int, threads, 0,
    "Threads that compute; 0: one per core, or with --sync half of them, since the trainer also computes. If programs "
    "share cores, more threads than cores make all of them slower.");
ABSL_FLAG(int, max_batch, 256, "Sequences that run at once; also the most completions (n) of one prompt.");
ABSL_FLAG(int, max_step_tokens, 1024, "Tokens computed in one step; longer prompts are computed in pieces.");
ABSL_FLAG(int, max_waiting, 4096, "Sequences that may wait to run; further requests are answered 429.");
ABSL_FLAG(int, max_connections, 0,
          "Connections that are served at once; more are answered 503, with a few exceptions for /health and /metrics. "
          "0: 4096, "
          "or fewer if the limit of open files (ulimit -n) has no room for them.");
ABSL_FLAG(int, max_choices, 1024, "The most completions in one request: prompts times n.");
ABSL_FLAG(bascule::ByteSize, max_body_bytes, bascule::ByteSize{8 << 20}, "The largest body of a request.");
ABSL_FLAG(
    std::string, on_update, "keep",
    "What running requests do when the weights change: keep (continue with the new weights), abort (end with the "
    "tokens they have) or wait (end with the weights they began with; the change waits for them, and new requests "
    "for the change: see --wait-at-most).");
ABSL_FLAG(
    double, wait_at_most, 3,
    "Seconds that a change waits with --on-update=wait; what still runs then continues with the new weights. The "
    "trainer waits meanwhile, and gives up on an engine that takes longer than the flip_timeout of --sync (5s unless "
    "the trainer's and this engine's URL give more): leave it the time of four steps.");
ABSL_FLAG(
    std::string, logprobs_mode, "raw",
    "Log-probabilities for requests that do not choose: raw (of the logits) or processed (under the temperature).");
ABSL_FLAG(
    std::string, generation_config, "auto",
    "Where temperature, top_k, top_p, min_p, repetition_penalty and max_new_tokens come from for requests that do not "
    "choose: auto (the checkpoint's generation_config.json, if there is one), none (no file), or the folder of a "
    "generation_config.json. The values are printed to stderr at the start.");
ABSL_FLAG(
    bascule::ref::KeyFlag, api_key, {},
    "The key that clients must send (Authorization: Bearer KEY), except to /health and /metrics. Every user of this "
    "machine can read it here; prefer --api-key-file or the variable BASCULE_API_KEY.");
ABSL_FLAG(bascule::ref::KeyFlag, api_key_file, {}, "A file whose first line is the key.");
ABSL_FLAG(double, drain_seconds, 30, "On SIGTERM, SIGINT or SIGHUP, how long running requests may take to finish.");
ABSL_FLAG(
    bool, verbose, false,
    "Print to stderr a line for each flip and each failure. Without it: only why the engine has not joined a sender.");

namespace bascule::ref {
namespace {

constexpr std::size_t kMostNameBytes = 255;  // it stands in every line of a log
// In UTF-8, and without what would break a line of a log or a table.
bool is_printable(const std::string& name) {
  return is_utf8(name) && std::none_of(name.begin(), name.end(), absl::ascii_iscntrl);
}

// A name stands in URLs and in answers.
absl::Status check_served_names(const std::vector<std::string>& names) {
  FlagChecks checks;
  for (const std::string& name : names)
    checks.that(!name.empty() && name.size() <= kMostNameBytes && is_printable(name), "served-model-name",
                absl::CHexEscape(name.substr(0, kMostNameBytes)), "give names of 1 to ", kMostNameBytes,
                " bytes of UTF-8, as --served-model-name=Qwen/Qwen3-0.6B,qwen");
  return checks.status();
}

absl::Status check_flags() {
  const std::string on_update = absl::GetFlag(FLAGS_on_update), graphs = absl::GetFlag(FLAGS_graphs),
                    worker = absl::GetFlag(FLAGS_worker);
  FlagChecks checks;
  checks.not_empty("model", absl::GetFlag(FLAGS_model), "the folder of a checkpoint", "trainer_ref/demo")
      .that(absl::GetFlag(FLAGS_base).empty() || absl::GetFlag(FLAGS_sync).empty(), "base", absl::GetFlag(FLAGS_base),
            "with --sync the weights come from a trainer and change; give one of the two")
      .not_empty("worker", worker, "a name", "engine-0")
      .not_empty("generation-config", absl::GetFlag(FLAGS_generation_config), "auto, none or a folder", "none")
      .that(worker.size() <= kMostNameBytes, "worker", cat(absl::CHexEscape(worker.substr(0, 16)), "…"), "a name of ",
            worker.size(), " bytes; give one of 1 to ", kMostNameBytes, ", as --worker=engine-0")
      .that(is_printable(worker), "worker", absl::CHexEscape(worker),
            "give a name in UTF-8 without control characters, as --worker=engine-0")
      .one_of("graphs", graphs, {"auto", "on", "off"})
      .one_of("logprobs-mode", absl::GetFlag(FLAGS_logprobs_mode), {"raw", "processed"})
      .one_of("dtype", absl::GetFlag(FLAGS_dtype), {"f32", "bf16"})
      .one_of("until-first", absl::GetFlag(FLAGS_until_first), {"none", "checkpoint"})
      .one_of("on-update", on_update, {"keep", "abort", "wait"})
      .between("wait-at-most", absl::GetFlag(FLAGS_wait_at_most), 0.0, 3600.0)
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024)
      .between("max-batch", absl::GetFlag(FLAGS_max_batch), 1, 65536)
      .at_least("max-step-tokens", absl::GetFlag(FLAGS_max_step_tokens), absl::GetFlag(FLAGS_max_batch))
      .at_least("max-waiting", absl::GetFlag(FLAGS_max_waiting), 0)
      .at_least("max-connections", absl::GetFlag(FLAGS_max_connections), 0)
      .between("max-adapters", absl::GetFlag(FLAGS_max_adapters), 0, 4096)
      .between("max-adapter-rank", absl::GetFlag(FLAGS_max_adapter_rank), 1, 65536)
      .at_least("max-choices", absl::GetFlag(FLAGS_max_choices), 1)
      .at_least("max-body-bytes", absl::GetFlag(FLAGS_max_body_bytes).bytes, std::int64_t{1024})
      .between("drain-seconds", absl::GetFlag(FLAGS_drain_seconds), 0.0, 86400.0);
  BASCULE_TRY(checks.status());
  BASCULE_TRY(check_cache_flags());
  return check_served_names(absl::GetFlag(FLAGS_served_model_name));
}

// --adapter and --adapters. The sources are opened later.
absl::Status read_adapters(EngineSettings& settings) {
  settings.adapter_folder = absl::GetFlag(FLAGS_adapters);
  settings.active_adapter = absl::GetFlag(FLAGS_active_adapter);
  settings.max_adapters = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_adapters));
  settings.max_adapter_rank = absl::GetFlag(FLAGS_max_adapter_rank);
  for (const std::string& given : absl::GetFlag(FLAGS_adapter).values) {
    const std::size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == given.size())
      return invalid_argument("--adapter=", given, ": expected NAME=SOURCE, as --adapter=math=out/run/adapter_step_60");
    settings.adapters.push_back({.name = given.substr(0, equals), .source = given.substr(equals + 1)});
  }
  FlagChecks checks;
  checks.that(settings.adapters.size() <= settings.max_adapters, "max-adapters", settings.max_adapters,
              "--adapter names ", settings.adapters.size(),
              " adapters; give as many or more, as --max-adapters=", settings.adapters.size());
  checks.that(settings.active_adapter.empty() ||
                  std::ranges::find(settings.adapters, settings.active_adapter, &EngineSettings::NamedAdapter::name) !=
                      settings.adapters.end(),
              "active-adapter", settings.active_adapter, "give the name of an --adapter=NAME=SOURCE");
  checks.that(settings.adapter_folder.empty() || settings.max_adapters > 0, "adapters", settings.adapter_folder,
              "with --max-adapters=0 none can be loaded; give more, as --max-adapters=8");
  return checks.status();
}

OnUpdate on_update() {
  const std::string given = absl::GetFlag(FLAGS_on_update);
  return given == "abort" ? OnUpdate::kAbort : given == "wait" ? OnUpdate::kWait : OnUpdate::kKeep;
}

// The sender's flip_timeout counts; this engine knows only its own URL's.
absl::Status check_wait(const std::string& sync) {
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(sync);
  if (on_update() != OnUpdate::kWait || !endpoint.ok()) return absl::OkStatus();  // none, or check_sync() refuses it
  const double seconds = absl::GetFlag(FLAGS_wait_at_most);
  FlagChecks checks;
  checks.that(absl::Seconds(seconds) < endpoint->flip_timeout, "wait-at-most", seconds,
              "a trainer gives up an engine that does not flip within flip_timeout=",
              absl::FormatDuration(endpoint->flip_timeout),
              "; give less, or a longer flip_timeout in --sync of both, as --sync=shm:///dir?flip_timeout=60s");
  return checks.status();
}

int threads() {
  if (const int asked = absl::GetFlag(FLAGS_threads); asked > 0) return asked;
  const int processes = absl::GetFlag(FLAGS_sync).empty() ? 1 : 2;
  return std::max(1, kernels::usable_cores() / processes);
}

// The bytes of the engine's own weights on its device: one copy of a checkpoint; none of a base or of a trainer's slots
// there, which it maps; two of what comes from elsewhere.
std::int64_t own_weight_bytes(const EngineSettings& settings) {
  std::int64_t bytes = 0;
  for (const TensorSpec& spec : weight_specs(settings.config, settings.dtype))
    bytes += static_cast<std::int64_t>(byte_count(spec.dtype, spec.shape));
  if (!settings.base.empty()) return 0;
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(settings.sync);
  if (settings.sync.empty() || !endpoint.ok()) return bytes;
  return keeps_slots_on_gpu(*endpoint) ? 0 : 2 * bytes;
}

void say(std::string_view line) {
  std::fprintf(stderr, "bascule-engine: %.*s\n", static_cast<int>(line.size()), line.data());
}

EngineOptions engine_options(const CacheSize& cache) {
  EngineOptions options;
  options.limits = {.max_batch = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_batch)),
                    .max_step_tokens = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_step_tokens))};
  options.blocks = static_cast<std::size_t>(cache.blocks);
  options.max_waiting = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_waiting));
  options.on_update = on_update();
  options.wait_at_most = absl::Seconds(absl::GetFlag(FLAGS_wait_at_most));
  options.warn = [name = absl::GetFlag(FLAGS_worker)](std::string_view line) {
    std::fprintf(stderr, "%s: %.*s\n", name.c_str(), static_cast<int>(line.size()), line.data());
  };
  if (absl::GetFlag(FLAGS_verbose)) options.log = options.warn;
  return options;
}

// As many connections as --max-connections says, or as this process may have descriptors for.
absl::StatusOr<Connections::Limits> connection_limits() {
  constexpr std::size_t kOtherFiles = 256;  // weights, threads, the sender's memory
  const std::size_t files = share_of_descriptors(std::numeric_limits<std::size_t>::max(), 1);
  const auto asked = static_cast<std::size_t>(absl::GetFlag(FLAGS_max_connections));
  Connections::Limits limits;
  if (asked > 0) limits.most = asked;
  limits.spare = std::clamp<std::size_t>(limits.most / 8, 16, limits.spare);
  if (limits.most + limits.spare + kOtherFiles <= files) return limits;
  const std::size_t room = files > 2 * kOtherFiles ? (files - kOtherFiles) * 8 / 9 - 16 : 0;
  if (asked > 0 || room == 0)
    return invalid_argument("--max-connections=", asked, ": this process may open ", files,
                            " files (ulimit -Hn), and needs ", kOtherFiles + limits.spare,
                            " besides those; raise that limit", room > 0 ? cat(", or give at most ", room) : "");
  limits.most = room;
  limits.spare = std::clamp<std::size_t>(room / 8, 16, limits.spare);
  say(cat("serves ", room, " connections at once, because this process may open ", files, " files (ulimit -Hn)"));
  return limits;
}

absl::StatusOr<RequestDefaults> request_defaults(const std::filesystem::path& model) {
  const std::string given = absl::GetFlag(FLAGS_generation_config);
  if (given == "none") return RequestDefaults{};
  const std::filesystem::path file =
      (given == "auto" ? model : std::filesystem::path(given)) / "generation_config.json";
  absl::StatusOr<RequestDefaults> defaults = read_generation_config(file);
  if (given == "auto" && absl::IsNotFound(defaults.status())) return RequestDefaults{};
  BASCULE_TRY(of_flag(defaults.status(), "generation-config", given,
                      "give auto, the folder of a generation_config.json, or none"));
  if (const std::string changes = changes_of(*defaults); !changes.empty())
    say(cat("requests that do not choose get ", changes, ", from ", file.string(),
            "; --generation-config=none ignores the file"));
  if (!defaults->unapplied.empty())
    say(cat(file.string(),
            ": not applied here, as in vLLM, but by transformers: ", absl::StrJoin(defaults->unapplied, ", "),
            "; requests have stop, min_tokens and logit_bias for some of this"));
  return defaults;
}

absl::StatusOr<HttpServerOptions> server_options() {
  HttpServerOptions options;
  BASCULE_ASSIGN(const HttpAddress address, parse_http_address("listen", absl::GetFlag(FLAGS_listen)));
  BASCULE_ASSIGN(options.api_key, find_api_key(absl::GetFlag(FLAGS_api_key), absl::GetFlag(FLAGS_api_key_file)));
  BASCULE_ASSIGN(options.allowed_origins, parse_origins(absl::GetFlag(FLAGS_allowed_origins)));
  options.host = address.host;
  options.port = address.port;
  BASCULE_ASSIGN(options.connections, connection_limits());
  options.max_body_bytes = static_cast<std::uint64_t>(absl::GetFlag(FLAGS_max_body_bytes).bytes);
  options.stop_signals = stop_signals();
  options.drain = absl::Seconds(absl::GetFlag(FLAGS_drain_seconds));
  return options;
}

// The device that --device names, once --sync and --wait-at-most are checked: opening it takes seconds, so errors that
// do not depend on it come first.
absl::StatusOr<c10::Device> open_device(const std::string& sync) {
  const std::string name = absl::GetFlag(FLAGS_device);
  const auto check = [&](bool on_host) {
    return sync.empty() ? absl::OkStatus()
                        : annotate(check_sync(sync, on_host ? ComputesOn::kHost : ComputesOn::kGpu, SyncEnd::kReceiver),
                                   cat("--sync=", sync));
  };
  if (name != "auto") BASCULE_TRY(check(name == "cpu"));
  BASCULE_TRY(check_wait(sync));
  BASCULE_ASSIGN(const c10::Device device, open_torch_device(name, say));
  if (name == "auto") BASCULE_TRY(check(device.is_cpu()));
  if (device.is_cpu() && absl::GetFlag(FLAGS_graphs) == "on")
    return invalid_argument("--graphs=on: a CPU replays none; give --graphs=auto, --graphs=off or --device=cuda");
  return device;
}

}  // namespace

absl::StatusOr<EngineSettings> settings_from_flags() {
  BASCULE_TRY(check_flags());
  EngineSettings settings;
  BASCULE_ASSIGN(settings.server, server_options());
  settings.sync = absl::GetFlag(FLAGS_sync);
  settings.serves_first = absl::GetFlag(FLAGS_until_first) == "checkpoint";
  settings.base = absl::GetFlag(FLAGS_base);
  settings.bridge_file = absl::GetFlag(FLAGS_bridge_config);
  if (settings.bridge_file.empty()) settings.bridge_file = bridge_file_of_environment().value_or("");
  BASCULE_ASSIGN(settings.device, open_device(settings.sync));
  BASCULE_TRY(read_adapters(settings));
  settings.folder = absl::GetFlag(FLAGS_model);
  settings.worker = absl::GetFlag(FLAGS_worker);
  settings.served_names = absl::GetFlag(FLAGS_served_model_name);
  settings.graphs = absl::GetFlag(FLAGS_graphs);
  settings.threads = threads();
  settings.max_choices = absl::GetFlag(FLAGS_max_choices);
  if (absl::GetFlag(FLAGS_dtype) == "bf16") settings.dtype = DType::kBF16;
  if (absl::GetFlag(FLAGS_logprobs_mode) == "processed") settings.logprobs = LogprobsMode::kProcessed;
  absl::StatusOr<ModelConfig> config = read_config(settings.folder);
  BASCULE_TRY(of_flag(config.status(), "model", settings.folder.string(), kModelAdvice));
  settings.config = *std::move(config);
  BASCULE_ASSIGN(const CacheSize cache,
                 cache_size(settings.config, settings.dtype, settings.device, own_weight_bytes(settings)));
  settings.max_model_len = cache.max_model_len;
  BASCULE_ASSIGN(settings.defaults, request_defaults(settings.folder));
  settings.engine = engine_options(cache);
  return settings;
}

}  // namespace bascule::ref
