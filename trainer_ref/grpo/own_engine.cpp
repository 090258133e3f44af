#include <bascule/trainer_ref/grpo/own_engine.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/time/clock.h"
#include <bascule/trainer_ref/engine/compute/cache_attention.h>
#include <bascule/trainer_ref/engine/compute/torch_runner.h>
#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kTokens = kBlockTokens;
constexpr absl::Duration kMostPause = absl::Minutes(2);  // far longer than a step
constexpr std::int64_t kLeastSequences = 8;              // that the cache has room for

at::ScalarType type_of(const Policy& policy) { return policy.weights().begin()->second.scalar_type(); }

// As many blocks as an engine has by default, and room for some of the longest sequences.
std::int64_t blocks_for(const Policy& policy, std::int64_t longest) {
  const std::int64_t bytes = std::int64_t{policy.device().is_cpu() ? 256 : 4096} << 20;
  const std::int64_t needed = (longest + kTokens - 1) / kTokens * kLeastSequences;
  return std::max(bytes / block_bytes(policy.config(), type_of(policy)), needed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnEngine>> OwnEngine::start(const OwnEngineOptions& options, const Policy& policy) {
  EngineOptions engine{.blocks = static_cast<std::size_t>(blocks_for(policy, options.longest)), .warn = options.log};
  std::unique_ptr<OwnEngine> own(new OwnEngine(options, policy, std::move(engine)));
  BASCULE_TRY(own->open());
  return own;
}

OwnEngine::OwnEngine(const OwnEngineOptions& options, const Policy& policy, EngineOptions engine)
    : options_(options), policy_(policy), engine_(std::move(engine)) {}

OwnEngine::~OwnEngine() {
  engine_.stop();
  if (server_) server_->stop();
  if (http_.joinable()) http_.join();
}

absl::Status OwnEngine::open() {
  const ModelConfig& config = policy_.config();
  const EngineOptions& engine = engine_.options();
  const Place place = Place::on(policy_.device());
  ModelCard card;
  card.id = cat("base/", options_.adapter);  // other than the adapter's name
  card.created = absl::ToUnixSeconds(absl::Now());
  card.vocab_size = config.vocab_size;
  card.eos_token_ids = config.eos_token_ids;
  card.max_model_len = std::min(config.max_position_embeddings, static_cast<std::int64_t>(engine.blocks) * kTokens);
  card.max_batch = static_cast<std::int64_t>(engine.limits.max_batch);
  card.worker = "trainer";
  card.device = policy_.device().str();
  card.no_text = card.no_chat = absl::UnimplementedError("the trainer's own engine takes token ids");
  card.adapters = &engine_.adapters();
  BASCULE_ASSIGN(server_, HttpServer::listen({.api_key = options_.api_key, .stop_signals = {}}, engine_, card));

  RunnerOptions options{.blocks = engine.blocks,
                        .max_adapters = 1,
                        .dtype = type_of(policy_),
                        .place = place,
                        .most_rows = card.max_batch,
                        .most_blocks = (card.max_model_len + kTokens - 1) / kTokens,
                        .log = options_.log};
  if (!place.device.is_cpu())
    if (auto recorder = open_graph_recorder(); recorder.ok()) options.recorder = *std::move(recorder);
  BASCULE_ASSIGN(auto weights, ServedWeights::of_owner(config, policy_.weights(), place, version_));
  try {
    engine_.start(std::make_unique<TorchRunner>(config, std::move(options), std::move(weights)));
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        cat("the cache of --engines=none on ", place.device.str(), ": ", error.what_without_backtrace()));
  }
  http_ = std::thread([server = server_.get()] { server->run(); });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> OwnEngine::meet(const Meeting& /*meeting*/) {
  return std::vector<std::string>{server_->url()};
}

// Blocks until the engine's thread has done what it was asked, for at most kMostPause.
absl::Status OwnEngine::told(const std::function<void(Engine::Told)>& ask) {
  const auto answer = std::make_shared<std::promise<absl::Status>>();  // the engine may answer later
  std::future<absl::Status> told = answer->get_future();
  ask([answer](const absl::Status& status) { answer->set_value(status); });
  if (told.wait_for(on_clock(kMostPause)) == std::future_status::ready) return told.get();
  return deadline_exceeded("the engine of --engines=none did not come to rest within ",
                           absl::FormatDuration(kMostPause), "; a step of it hangs");
}

absl::Status OwnEngine::before_write() {
  return told([this](Engine::Told done) { engine_.pause(PauseMode::kAbort, /*clear_cache=*/false, std::move(done)); });
}

absl::StatusOr<SendReport> OwnEngine::publish(Weights /*weights*/) {
  const absl::Time began = absl::Now();
  if (!policy_.device().is_cpu())
    c10::impl::VirtualGuardImpl(policy_.device().type()).getStream(policy_.device()).synchronize();
  SendReport report;
  if (policy_.adapter()) {
    AdapterEntry entry;
    entry.name = options_.adapter;
    entry.source = "this process";
    entry.created = absl::ToUnixSeconds(began);
    auto weights = std::make_unique<OpenedAdapter>(*policy_.adapter());
    report.version = loaded_++;  // an adapter's first version is 0
    BASCULE_TRY(told([&](Engine::Told done) {
      engine_.load_adapter(std::move(entry), /*in_place=*/true, std::move(weights), std::move(done));
    }));
  } else {
    report.version = version_->fetch_add(1) + 1;
    engine_.wake();
  }
  // Commands of later calls are obeyed after a commit, so that no request finds the version before.
  BASCULE_TRY(told([this](Engine::Told done) { engine_.resume(std::move(done)); }));
  report.seconds.commit = absl::ToDoubleSeconds(absl::Now() - began);
  report.memory = "the trainer's own tensors";
  return report;
}

}  // namespace bascule::ref
