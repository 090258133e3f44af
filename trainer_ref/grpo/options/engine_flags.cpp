// The flags of engines: their URLs, the endpoint for weights, and the allowed age of their completions.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/flags/flag.h"
#include <bascule/kernels/control_group.h>
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/trainer_ref/grpo/process/engine_threads.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(std::vector<std::string>, engines, {},
          "URLs of the engines, such as http://127.0.0.1:8001,http://127.0.0.1:8002; or none: this process generates "
          "with its own weights, of which there is one copy then, and trains in turns");
ABSL_FLAG(std::string, sync, "",
          "Endpoint for the weights, the same as the engines' --sync: shm:///run/user/1000/grpo, or with --device=cuda "
          "cuda-ipc:///run/user/1000/grpo. With ?wire_dtype=bf16 the f32 weights are cast while they are packed, for "
          "engines with --dtype=bf16; --importance-cap corrects for the rounding. With ?slots=1 the engines read the "
          "trainer's own weights, and yield while the optimizer writes (docs/guide/pair.md). none: --restart-every");
ABSL_FLAG(int64_t, restart_every, 0,
          "With --sync=none and --spawn-engines: nothing is sent; every so many steps the engines are restarted with a "
          "checkpoint of the weights, which takes seconds. For comparison");
ABSL_FLAG(bool, colocate, false,
          "The engines compute on the trainer's own device: they release their caches while it trains, and it releases "
          "the memory of training while they generate");
ABSL_FLAG(absl::Duration, request_timeout, absl::Seconds(60),
          "How long an engine may take for one prompt's completions");
ABSL_FLAG(absl::Duration, engine_timeout, absl::Minutes(2), "How long to wait for the engines at the start");
ABSL_FLAG(int64_t, sync_every, 1, "Steps between versions");
ABSL_FLAG(int64_t, max_staleness, 0,
          "How many versions may be published between a token's sampling and its use; completions with older tokens "
          "are dropped. Above 0, engines generate while the trainer trains");
ABSL_FLAG(double, min_batch, 0.5, "The run ends if less than this share of a step's completions remains");
ABSL_FLAG(bool, drop_long, false, "Leave out prompts that do not fit the engines' --max-model-len, instead of failing");
ABSL_FLAG(int, threads, 0,
          "Threads that compute; 0: the cores divided evenly among this process and the engines on this host. "
          "Engines of --spawn-engines get as many, if there are enough cores");

namespace bascule::ref {
namespace {

bool is_local(const std::string& url) {
  return url.starts_with("http://127.") || url.starts_with("http://localhost") || url.starts_with("http://[::1]");
}

int threads_of(const EngineFlags& flags) {
  const auto local = flags.spawn.engines + std::count_if(flags.urls.begin(), flags.urls.end(), is_local);
  return trainer_threads(absl::GetFlag(FLAGS_threads), kernels::usable_cores(), static_cast<int>(local));
}

// --sync=none and --restart-every, which belong together.
void check_restarts(int spawned, FlagChecks& checks) {
  const std::int64_t every = absl::GetFlag(FLAGS_restart_every);
  const bool restarts = absl::GetFlag(FLAGS_sync) == "none";
  checks.at_least<std::int64_t>("restart-every", every, 0)
      .that(restarts || every == 0, "restart-every", every,
            "weights are sent, and engines are not restarted for them; leave it out, or give --sync=none")
      .that(!restarts || spawned > 0, "sync", "none",
            "engines are restarted with checkpoints, which needs engines that this program starts; add "
            "--spawn-engines=1")
      .that(!restarts || every > 0, "restart-every", every,
            "with --sync=none it says how many steps pass between two restarts of the engines; give 1 or more")
      .that(!restarts || absl::GetFlag(FLAGS_sync_every) == 1, "sync-every", absl::GetFlag(FLAGS_sync_every),
            "with --sync=none the engines get weights every --restart-every steps; leave it out")
      .that(!restarts || absl::GetFlag(FLAGS_max_staleness) == 0, "max-staleness", absl::GetFlag(FLAGS_max_staleness),
            "with --sync=none no engine runs while weights change; give 0")
      .that(!restarts || !absl::GetFlag(FLAGS_colocate), "colocate", true,
            "with --sync=none engines are ended while they get weights, and do not sleep; leave it out");
}

// --engines=none: what has no meaning without other processes.
void check_own(FlagChecks& checks) {
  const std::string sync = absl::GetFlag(FLAGS_sync);
  checks
      .that(sync.empty(), "sync", sync,
            "with --engines=none this process generates with its own weights, and sends none; leave it out")
      .that(absl::GetFlag(FLAGS_sync_every) == 1, "sync-every", absl::GetFlag(FLAGS_sync_every),
            "with --engines=none completions are always of the newest weights; leave it out")
      .that(absl::GetFlag(FLAGS_max_staleness) == 0, "max-staleness", absl::GetFlag(FLAGS_max_staleness),
            "with --engines=none nothing is generated while the weights change; give 0")
      .that(!absl::GetFlag(FLAGS_colocate), "colocate", true,
            "with --engines=none there are no engines to sleep; leave it out");
}

bool is_own() { return absl::GetFlag(FLAGS_engines) == std::vector<std::string>{"none"}; }

absl::Status check(const std::vector<std::string>& engines, const std::string& sync, int spawned, RunKind kind) {
  const bool supervised = kind.supervised, dry = kind.dry_run;
  FlagChecks checks;
  checks
      .that(
          dry || supervised || spawned > 0 || !engines.empty(), "engines", "",
          "give the URLs of the engines, as --engines=http://127.0.0.1:8001, or --spawn-engines=2, which starts some, "
          "or --engines=none, and this process generates (or --supervised, which needs none)")
      .that(spawned == 0 || engines.empty(), "engines", engines.empty() ? "" : engines.front(),
            "--spawn-engines starts this run's own engines; leave one of the two out")
      .that(spawned == 0 || !supervised, "spawn-engines", spawned, "a supervised run has no engines; leave it out")
      .that(dry || supervised || spawned > 0 || is_own() || !sync.empty(), "sync", "",
            "give the endpoint that the engines were started with, as --sync=shm:///run/user/1000/grpo")
      .that(std::set<std::string>(engines.begin(), engines.end()).size() == engines.size(), "engines", "…",
            "the same URL occurs twice; give each engine once")
      .positive_time("request-timeout", absl::GetFlag(FLAGS_request_timeout), "60s")
      .positive_time("engine-timeout", absl::GetFlag(FLAGS_engine_timeout), "2m")
      .at_least<std::int64_t>("sync-every", absl::GetFlag(FLAGS_sync_every), 1)
      .at_least<std::int64_t>("max-staleness", absl::GetFlag(FLAGS_max_staleness), 0)
      .between("min-batch", absl::GetFlag(FLAGS_min_batch), 0.0, 1.0, 0.5)
      .that(!absl::GetFlag(FLAGS_colocate) || !supervised, "colocate", true,
            "a supervised run has no engines; leave it out")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_max_staleness) == 0, "max-staleness",
            absl::GetFlag(FLAGS_max_staleness), "with --colocate engines sleep while the trainer trains; give 0")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_sync_every) == 1, "sync-every",
            absl::GetFlag(FLAGS_sync_every), "with --colocate engines wake up for each step's version; give 1")
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024);
  check_restarts(spawned, checks);
  if (is_own()) {
    check_own(checks);
    return checks.status();
  }
  for (const std::string& url : engines)
    if (const absl::Status status = check_url(url); !status.ok())
      checks.that(false, "engines", url, status.message(), ", as --engines=http://127.0.0.1:8001");
  return checks.status();
}

}  // namespace

absl::StatusOr<EngineFlags> parse_engine_flags(SpawnFlags spawn, RunKind kind) {
  std::vector<std::string> urls = absl::GetFlag(FLAGS_engines);
  std::string sync = absl::GetFlag(FLAGS_sync);
  BASCULE_ASSIGN(const std::optional<BridgeConfig> bridge, find_bridge(!urls.empty() || spawn.engines > 0, sync));
  if (bridge) {
    urls = {bridge->engine};
    sync = bridge->sync;
  }
  BASCULE_TRY(check(urls, sync, spawn.engines, kind));
  EngineFlags flags{.urls = std::move(urls),
                    .spawn = std::move(spawn),
                    .sync = std::move(sync),
                    .adapter = bridge ? std::optional(bridge->adapter) : std::nullopt,
                    .request_timeout = absl::GetFlag(FLAGS_request_timeout),
                    .start_timeout = absl::GetFlag(FLAGS_engine_timeout),
                    .sync_every = absl::GetFlag(FLAGS_sync_every),
                    .max_staleness = absl::GetFlag(FLAGS_max_staleness),
                    .min_batch = absl::GetFlag(FLAGS_min_batch),
                    .drop_long = absl::GetFlag(FLAGS_drop_long),
                    .colocate = absl::GetFlag(FLAGS_colocate)};
  if (flags.sync == "none") {
    flags.sync.clear();
    flags.restarts = true;
    flags.sync_every = absl::GetFlag(FLAGS_restart_every);
  }
  if (is_own()) {
    flags.urls.clear();
    flags.own = true;
  }
  for (std::string& url : flags.urls)
    while (url.ends_with('/')) url.pop_back();
  flags.threads = threads_of(flags);
  return flags;
}

}  // namespace bascule::ref
