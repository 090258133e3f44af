// bascule-engine: generates with a checkpoint's weights, or with weights that a trainer sends.
#include <ATen/Parallel.h>

#include <cstdio>
#include <filesystem>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/adapter_watch.h>
#include <bascule/trainer_ref/engine/compute/adapter_weights.h>
#include <bascule/trainer_ref/engine/compute/torch_runner.h>
#include <bascule/trainer_ref/engine/http/adapter_request.h>
#include <bascule/trainer_ref/engine/http/http_server.h>
#include <bascule/trainer_ref/engine/settings.h>
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/trainer_ref/model/special_tokens.h>
#include <bascule/trainer_ref/program/bridge_config.h>
#include <bascule/trainer_ref/program/pair.h>
#include <bascule/trainer_ref/text/tokenizer.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/descriptors.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

const ProgramInfo& program() {
  static const ProgramInfo info = engine_program(
      "generates text with a decoder, over HTTP.\n\n"
      "Serves OpenAI's /v1/completions, /v1/chat/completions and /v1/models, /tokenize, /detokenize, /health and\n"
      "/metrics (docs/guide/engine-api.md), and vLLM's /sleep, /wake_up and /is_sleeping, which lend the cache's\n"
      "memory to a trainer, /pause and /resume, and its routes of weight transfer. --adapter serves LoRA adapters "
      "beside the model. With --sync it takes its weights from a "
      "trainer and flips to each new version between two\n"
      "tokens. Prints its address to stdout once it listens; /health is 503 until a version is served.\n"
      "SIGTERM, SIGINT or SIGHUP lets running requests finish; a second one ends it at once.");
  return info;
}

// Null if steps are to run without graphs.
absl::StatusOr<std::unique_ptr<GraphRecorder>> recorder_for(const std::string& graphs, at::Device device) {
  if (graphs == "off" || device.is_cpu()) return nullptr;
  absl::StatusOr<std::unique_ptr<GraphRecorder>> recorder = open_graph_recorder();
  if (recorder.ok() || graphs == "on") return recorder;
  std::fprintf(stderr, "bascule-engine: generates without graphs: %s\n", recorder.status().ToString().c_str());
  return nullptr;
}

ModelCard describe(const EngineSettings& settings, const absl::StatusOr<Tokenizer>& tokenizer) {
  const std::filesystem::path& folder = settings.folder;
  ModelCard card;
  name_model(card, folder, settings.served_names);
  card.vocab_size = settings.config.vocab_size;
  card.eos_token_ids = settings.config.eos_token_ids;
  if (card.eos_token_ids.empty())
    std::fprintf(stderr, "bascule-engine: %s; texts end only by max_tokens or a request's stop\n", kNoEndToken.data());
  card.max_model_len = settings.max_model_len;
  card.max_batch = static_cast<std::int64_t>(settings.engine.limits.max_batch);
  card.max_choices = settings.max_choices;
  card.worker = settings.worker;
  card.sync = settings.sync;
  card.bf16 = settings.dtype == DType::kBF16;
  card.device = settings.device.str();
  card.created = absl::ToUnixSeconds(absl::Now());
  card.logprobs = settings.logprobs;
  card.defaults = settings.defaults;
  if (tokenizer.ok()) {
    card.tokenizer = *tokenizer;
    if (auto tokens = read_special_tokens(folder); tokens.ok()) card.special_tokens = *std::move(tokens);
  } else {
    card.no_text = tokenizer.status();
    std::fprintf(stderr, "bascule-engine: serves token ids only: %s\n", tokenizer.status().ToString().c_str());
  }
  absl::StatusOr<ChatTemplate> chat = ChatTemplate::read(folder);
  if (chat.ok()) {
    card.chat = *std::move(chat);
  } else {
    card.no_chat = chat.status();
    if (!absl::IsNotFound(chat.status()))
      std::fprintf(stderr, "bascule-engine: serves no chat: %s\n", chat.status().ToString().c_str());
  }
  return card;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> open_weights(const EngineSettings& settings, const Place& place,
                                                            std::string compatibility_key, Engine& engine) {
  const auto checkpoint = [&]() -> absl::StatusOr<std::unique_ptr<ServedWeights>> {
    auto weights =
        ServedWeights::from_checkpoint(settings.folder, settings.config, settings.dtype, place, settings.engine.log);
    BASCULE_TRY(of_flag(weights.status(), "model", settings.folder.string(), kModelAdvice));
    return weights;
  };
  if (!settings.sync.empty()) {
    std::unique_ptr<ServedWeights> first;
    if (settings.serves_first) {
      BASCULE_ASSIGN(first, checkpoint());
    }
    return ServedWeights::from_sender(settings.config, settings.dtype,
                                      {.endpoint = settings.sync,
                                       .worker = settings.worker,
                                       .compatibility_key = std::move(compatibility_key),
                                       .on_pending = [&engine] { engine.wake(); },
                                       .log = settings.engine.log,
                                       .place = place,
                                       .first = std::move(first)});
  }
  if (settings.base.empty()) return checkpoint();
  auto weights = ServedWeights::from_base(settings.config, place,
                                          {.endpoint = settings.base,
                                           .name = settings.worker,
                                           .folder = settings.folder,
                                           .dtype = settings.dtype,
                                           .device = settings.device,
                                           .log = settings.engine.log});
  BASCULE_TRY(annotate(weights.status(), "--base"));
  return weights;
}

absl::StatusOr<std::unique_ptr<TorchRunner>> make_runner(const EngineSettings& settings, const Place& place,
                                                         std::string compatibility_key, Engine& engine) {
  constexpr auto kTokens = static_cast<std::int64_t>(kBlockTokens);
  RunnerOptions options{.blocks = settings.engine.blocks,
                        .max_adapters = settings.max_adapters,
                        .dtype = libtorch::scalar_type_of(settings.dtype),
                        .place = place};
  BASCULE_ASSIGN(options.recorder, recorder_for(settings.graphs, settings.device));
  options.most_rows = static_cast<std::int64_t>(settings.engine.limits.max_batch);
  options.most_blocks = (settings.max_model_len + kTokens - 1) / kTokens;
  options.log = settings.engine.log;
  BASCULE_ASSIGN(auto weights, open_weights(settings, options.place, std::move(compatibility_key), engine));
  try {
    return std::make_unique<TorchRunner>(settings.config, std::move(options), std::move(weights));
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        cat("the cache on ", settings.device.str(), ": ", error.what_without_backtrace()));
  }
}

// Null if the engine serves none.
std::shared_ptr<AdapterLoader> adapter_loader(const EngineSettings& settings, const Place& place, Engine& engine) {
  if (settings.max_adapters == 0) return nullptr;
  return std::make_shared<TorchAdapterLoader>(AdapterLoaderOptions{.config = settings.config,
                                                                   .max_rank = settings.max_adapter_rank,
                                                                   .dtype = libtorch::scalar_type_of(settings.dtype),
                                                                   .place = place,
                                                                   .worker = settings.worker,
                                                                   .on_pending = [&engine] { engine.wake(); },
                                                                   .log = settings.engine.log});
}

// Loads the adapters of the flags. Null if no folder of them is watched.
absl::StatusOr<std::unique_ptr<AdapterWatch>> load_adapters(const EngineSettings& settings, const ModelCard& card,
                                                            Engine& engine, AdapterLoader* loader) {
  for (const auto& [name, source] : settings.adapters) {
    absl::Status status = check_adapter_name(card, name);
    if (status.ok()) status = load_adapter(engine, *loader, name, source).status();
    if (!status.ok()) return invalid_argument("--adapter=", name, "=", source, ": ", message_of(status));
  }
  if (!settings.active_adapter.empty()) engine.adapters().activate(settings.active_adapter);
  if (settings.adapter_folder.empty()) return nullptr;
  auto watch = AdapterWatch::open(
      settings.adapter_folder, engine, *loader,
      [&card](std::string_view name) { return check_adapter_name(card, name); }, settings.engine.warn);
  if (!watch.ok()) return invalid_argument("--adapters=", settings.adapter_folder, ": ", message_of(watch.status()));
  return watch;
}

// Null if no file is wanted.
absl::StatusOr<std::unique_ptr<BridgeFile>> write_bridge(const EngineSettings& settings, const std::string& url) {
  if (settings.bridge_file.empty()) return nullptr;
  BridgeConfig bridge{.engine = url, .sync = settings.sync};
  for (const auto& [name, source] : settings.adapters)
    if (name == settings.active_adapter) {
      bridge.adapter = name;
      bridge.sync = source;
    }
  absl::StatusOr<std::unique_ptr<BridgeFile>> written = BridgeFile::write(
      settings.bridge_file, bridge, settings.folder.string(), weight_specs(settings.config, settings.dtype));
  if (!written.ok())
    return invalid_argument("--bridge-config=", settings.bridge_file.string(), ": ", message_of(written.status()),
                            "; give a file in a folder that exists, as --bridge-config=", kBridgeFile);
  return written;
}

absl::Status serve(const EngineSettings& settings) {
  at::set_num_threads(settings.threads);
  Engine engine(settings.engine);
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(settings.folder);
  const Place place = Place::on(settings.device);
  const std::shared_ptr<AdapterLoader> loader = adapter_loader(settings, place, engine);
  ModelCard card = describe(settings, tokenizer);
  card.adapters = &engine.adapters();
  // Binds before reading the weights, so that an address in use fails without that wait.
  BASCULE_ASSIGN(const std::unique_ptr<HttpServer> server, HttpServer::listen(settings.server, engine, card, loader));
  BASCULE_ASSIGN(
      std::unique_ptr<TorchRunner> runner,
      make_runner(settings, place,
                  tokenizer.ok() ? compatibility_key_of(settings.config, tokenizer->fingerprint()) : "", engine));
  engine.start(std::move(runner));
  BASCULE_ASSIGN(std::unique_ptr<AdapterWatch> watch, load_adapters(settings, card, engine, loader.get()));
  BASCULE_ASSIGN(const std::unique_ptr<BridgeFile> bridge, write_bridge(settings, server->url()));
  BASCULE_TRY(print(cat("listening on ", server->url(), "\n")));
  server->run();
  watch.reset();  // it waits for the engine
  engine.stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace bascule::ref

int main(int argc, char** argv) {
  using namespace bascule;
  let_writes_fail();
  raise_descriptor_limit();
  parse_flags_or_exit(ref::program(), argc, argv);
  const absl::StatusOr<ref::EngineSettings> settings = ref::settings_from_flags();
  if (!settings.ok()) refuse(ref::program(), settings.status());
  const absl::Status status = ref::serve(*settings);
  if (absl::IsInvalidArgument(status)) refuse(ref::program(), status);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-engine: %s\n", std::string(message_of(status)).c_str());
  return 1;
}
