// The routes of the engine's HTTP server: a table of paths, each with its method.
//
// Threads: the io_context's. What takes long runs in a WorkPool.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <bascule/trainer_ref/engine/http/adapter_request.h>
#include <bascule/trainer_ref/engine/http/api.h>
#include <bascule/trainer_ref/engine/http/http_waiting.h>
#include <bascule/trainer_ref/engine/http/origins.h>
#include <bascule/trainer_ref/engine/http/work_pool.h>
#include <bascule/trainer_ref/engine/schedule/engine.h>
#include <bascule/trainer_ref/http/http_connection.h>
#include <bascule/trainer_ref/http/http_message.h>

namespace bascule::ref {

// A request's result: an answer to be written, or none if the route has written it itself or the client is gone.
struct Routed {
  std::optional<HttpAnswer> answer;
  bool goes_on = true;  // the connection stays open after the answer
};

class HttpRoutes {
 public:
  // With an empty `api_key`, anybody may send requests. `loader` opens adapters; null: none are served. As many
  // requests may wait to be read as sequences may run and wait to run.
  HttpRoutes(boost::asio::io_context& io, Engine& engine, ModelCard card, std::string api_key, AllowedOrigins origins,
             std::shared_ptr<AdapterLoader> loader);

  void drain() { draining_ = true; }  // work is refused afterwards, and /health says so
  bool draining() const { return draining_; }

  // Whether the request comes from monitoring, which is answered even if the server is full.
  static bool for_watchers(const HttpHeader& header);
  const AllowedOrigins& origins() const { return origins_; }
  // The refusal for a page that may not use the engine, or a client without the key.
  std::optional<HttpAnswer> deny(const HttpHeader& header) const;
  // The answer that the header alone determines: no such path, another method, no key, shutting down, OPTIONS.
  std::optional<HttpAnswer> answer_header(const HttpHeader& header) const;

  using Reply = boost::asio::awaitable<Routed>;
  Reply respond(HttpRequest& request, HttpConnection& connection);

 private:
  struct Route;
  static std::span<const Route> routes();
  static const Route* find(const HttpHeader& header);

  using Parse = absl::StatusOr<ApiRequest>(std::string_view json, const ModelCard& card, std::uint64_t seed,
                                           const std::stop_token& stop);
  struct Converted {
    std::string answer;
    std::vector<std::string> ignored;
  };
  using Convert = absl::StatusOr<Converted>(std::string_view json, const ModelCard& card, const std::stop_token& stop);
  Reply complete(HttpRequest& request, HttpConnection& connection);
  Reply chat(HttpRequest& request, HttpConnection& connection);
  Reply generate(Parse* parse, HttpRequest& request, HttpConnection& connection);
  Reply tokenize(HttpRequest& request, HttpConnection& connection);
  Reply detokenize(HttpRequest& request, HttpConnection& connection);
  Reply tokenizer_info(HttpRequest& request, HttpConnection& connection);
  Reply root(HttpRequest& request, HttpConnection& connection);
  Reply version(HttpRequest& request, HttpConnection& connection);
  Reply models(HttpRequest& request, HttpConnection& connection);
  Reply one_model(HttpRequest& request, HttpConnection& connection);
  Reply health(HttpRequest& request, HttpConnection& connection);
  Reply metrics(HttpRequest& request, HttpConnection& connection);
  Reply generate_once(HttpRequest& request, HttpConnection& connection);
  Reply trl_chat(HttpRequest& request, HttpConnection& connection);
  Reply sleep(HttpRequest& request, HttpConnection& connection);
  Reply wake_up(HttpRequest& request, HttpConnection& connection);
  Reply is_sleeping(HttpRequest& request, HttpConnection& connection);
  Reply pause(HttpRequest& request, HttpConnection& connection);
  Reply resume(HttpRequest& request, HttpConnection& connection);
  Reply is_paused(HttpRequest& request, HttpConnection& connection);
  Reply reset_prefix_cache(HttpRequest& request, HttpConnection& connection);
  Reply init_weight_transfer(HttpRequest& request, HttpConnection& connection);
  Reply start_weight_update(HttpRequest& request, HttpConnection& connection);
  Reply update_weights(HttpRequest& request, HttpConnection& connection);
  Reply finish_weight_update(HttpRequest& request, HttpConnection& connection);
  Reply update_weight_version(HttpRequest& request, HttpConnection& connection);
  Reply weight_info(HttpRequest& request, HttpConnection& connection);
  Reply shutdown_weight_transfer(HttpRequest& request, HttpConnection& connection);
  Reply get_world_size(HttpRequest& request, HttpConnection& connection);
  Reply server_info(HttpRequest& request, HttpConnection& connection);
  Reply needs_group(HttpRequest& request, HttpConnection& connection);
  Reply needs_draft_model(HttpRequest& request, HttpConnection& connection);
  Reply load_lora_adapter(HttpRequest& request, HttpConnection& connection);
  Reply unload_lora_adapter(HttpRequest& request, HttpConnection& connection);
  Reply set_lora_adapter(HttpRequest& request, HttpConnection& connection);
  Reply clear_lora_adapter(HttpRequest& request, HttpConnection& connection);
  Reply lora_load(HttpRequest& request, HttpConnection& connection);
  Reply load(ParseAdapter* parse, HttpRequest& request, HttpConnection& connection);
  boost::asio::awaitable<absl::Status> first_version(AdapterEntry loaded, std::uint64_t source);
  Reply ask(std::function<void(Engine::Told)> begin, std::function<nlohmann::json()> text);
  bool sleeps() const;
  absl::StatusOr<std::optional<std::string>> name_version(std::string_view body, const char* field);
  Reply convert(Convert* convert, HttpRequest& request, HttpConnection& connection);
  boost::asio::awaitable<void> settle();
  std::shared_ptr<Waiting> watch(const HttpRequest& request, HttpConnection& connection);

  boost::asio::io_context& io_;
  Engine& engine_;
  const ModelCard card_;
  const std::string api_key_;
  const AllowedOrigins origins_;
  const std::shared_ptr<AdapterLoader> loader_;
  std::mt19937_64 seeds_{std::random_device{}()};
  bool draining_ = false;
  struct NamedVersion {
    Epoch epoch = 0;
    Version version = 0;
    std::optional<std::string> name = {};
  };
  NamedVersion named_version_;  // as a client called it
  WorkPool loads_;              // reads adapters: files may be slow, and no request may wait for them
  WorkPool pool_;               // last: their threads use the rest
};

}  // namespace bascule::ref
