#include <bascule/trainer_ref/engine/http/http_routes.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/engine/http/api_key.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t kMostLoads = 64;  // that wait

std::string_view path_of(const HttpHeader& header) {
  const std::string_view target(header.target().data(), header.target().size());
  std::string_view path = target.substr(0, target.find('?'));
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

bool has_no_body(const HttpHeader& header) {
  const auto length = header[http::field::content_length];
  return header[http::field::transfer_encoding].empty() && (length.empty() || length == "0");
}

}  // namespace

struct HttpRoutes::Route {
  std::string_view path;  // if it ends with '/', it matches all paths that begin with it
  http::verb verb;
  bool for_watchers;  // answered even if the server is full
  bool open;          // without the key
  Reply (HttpRoutes::*reply)(HttpRequest& request, HttpConnection& connection);
};

std::span<const HttpRoutes::Route> HttpRoutes::routes() {
  using http::verb;
  static constexpr std::array<Route, 40> kRoutes{{
      {"/v1/completions", verb::post, false, false, &HttpRoutes::complete},
      {"/v1/chat/completions", verb::post, false, false, &HttpRoutes::chat},
      {"/v1/models", verb::get, false, false, &HttpRoutes::models},
      {"/v1/models/", verb::get, false, false, &HttpRoutes::one_model},
      {"/tokenize", verb::post, false, false, &HttpRoutes::tokenize},
      {"/detokenize", verb::post, false, false, &HttpRoutes::detokenize},
      {"/tokenizer_info", verb::get, false, false, &HttpRoutes::tokenizer_info},
      {"/", verb::get, false, true, &HttpRoutes::root},
      {"/version", verb::get, false, false, &HttpRoutes::version},
      {"/health", verb::get, true, true, &HttpRoutes::health},
      {"/ping", verb::get, true, true, &HttpRoutes::health},
      {"/metrics", verb::get, true, true, &HttpRoutes::metrics},
      {"/v1/load_lora_adapter", verb::post, false, false, &HttpRoutes::load_lora_adapter},
      {"/v1/unload_lora_adapter", verb::post, false, false, &HttpRoutes::unload_lora_adapter},
      {"/set_lora_adapter", verb::post, false, false, &HttpRoutes::set_lora_adapter},
      {"/clear_lora_adapter", verb::post, false, false, &HttpRoutes::clear_lora_adapter},
      {"/lora/load", verb::post, false, false, &HttpRoutes::lora_load},
      {"/sleep", verb::post, false, false, &HttpRoutes::sleep},
      {"/wake_up", verb::post, false, false, &HttpRoutes::wake_up},
      {"/is_sleeping", verb::get, true, false, &HttpRoutes::is_sleeping},
      {"/pause", verb::post, false, false, &HttpRoutes::pause},
      {"/resume", verb::post, false, false, &HttpRoutes::resume},
      {"/is_paused", verb::get, true, false, &HttpRoutes::is_paused},
      {"/reset_prefix_cache", verb::post, false, false, &HttpRoutes::reset_prefix_cache},
      {"/init_weight_transfer_engine", verb::post, false, false, &HttpRoutes::init_weight_transfer},
      {"/start_weight_update", verb::post, false, false, &HttpRoutes::start_weight_update},
      {"/start_draft_weight_update", verb::post, false, false, &HttpRoutes::needs_draft_model},
      {"/update_weights", verb::post, false, false, &HttpRoutes::update_weights},
      {"/finish_weight_update", verb::post, false, false, &HttpRoutes::finish_weight_update},
      {"/update_weight_version", verb::post, false, false, &HttpRoutes::update_weight_version},
      {"/weight_info", verb::get, false, false, &HttpRoutes::weight_info},
      {"/shutdown_weight_transfer_engine", verb::post, false, false, &HttpRoutes::shutdown_weight_transfer},
      {"/get_world_size", verb::get, false, false, &HttpRoutes::get_world_size},
      {"/server_info", verb::get, false, false, &HttpRoutes::server_info},
      {"/generate", verb::post, false, false, &HttpRoutes::generate_once},
      {"/chat", verb::post, false, false, &HttpRoutes::trl_chat},
      {"/init_communicator", verb::post, false, false, &HttpRoutes::needs_group},
      {"/update_named_param", verb::post, false, false, &HttpRoutes::needs_group},
      {"/batch_update_named_params", verb::post, false, false, &HttpRoutes::needs_group},
      {"/close_communicator", verb::post, false, false, &HttpRoutes::needs_group},
  }};
  return kRoutes;
}

const HttpRoutes::Route* HttpRoutes::find(const HttpHeader& header) {
  const std::string_view path = path_of(header);
  for (const Route& route : routes())
    if (route.path == path || (route.path.size() > 1 && route.path.ends_with('/') && path.starts_with(route.path)))
      return &route;
  return nullptr;
}

HttpRoutes::HttpRoutes(boost::asio::io_context& io, Engine& engine, ModelCard card, std::string api_key,
                       AllowedOrigins origins, std::shared_ptr<AdapterLoader> loader)
    : io_(io),
      engine_(engine),
      card_(std::move(card)),
      api_key_(std::move(api_key)),
      origins_(std::move(origins)),
      loader_(std::move(loader)),
      loads_(kMostLoads),
      pool_(engine.options().max_waiting + engine.options().limits.max_batch) {}

bool HttpRoutes::for_watchers(const HttpHeader& header) {
  const Route* route = find(header);
  return route != nullptr && route->for_watchers;
}

std::optional<HttpAnswer> HttpRoutes::deny(const HttpHeader& header) const {
  std::optional<HttpAnswer> foreign = origins_.refuse(header);
  if (foreign) return foreign;
  const Route* route = find(header);
  // Browsers ask for OPTIONS without the key.
  const bool asks = header.method() == http::verb::options && has_no_body(header);
  if (api_key_.empty() || asks || (route != nullptr && route->open)) return std::nullopt;
  const auto given = header[http::field::authorization];
  if (gives_key({given.data(), given.size()}, api_key_)) return std::nullopt;
  HttpAnswer denied = refusal(401, given.empty() ? "this engine needs a key: send the header Authorization: Bearer KEY"
                                                 : "the key of the header Authorization is not this engine's");
  denied.set(http::field::www_authenticate, "Bearer");
  return denied;
}

std::optional<HttpAnswer> HttpRoutes::answer_header(const HttpHeader& header) const {
  std::optional<HttpAnswer> denied = deny(header);
  if (denied) return denied;
  const bool asks = header.method() == http::verb::options;
  if (asks && path_of(header) == "*") return AllowedOrigins::describe(header, "GET, HEAD, POST, OPTIONS");
  const Route* route = find(header);
  if (route == nullptr) {
    const auto name = [](std::string* text, const Route& each) { text->append(each.path); };
    // Clients add their paths to a base URL, which must end with /v1.
    const std::string meant = cat("/v1", path_of(header));
    const bool lacks_base =
        std::any_of(routes().begin(), routes().end(), [&](const Route& each) { return each.path == meant; });
    return refusal(404,
                   cat("no ", path_of(header), " here; ", lacks_base ? "the client's base URL must end with /v1; " : "",
                       "there are ", absl::StrJoin(routes(), ", ", name)));
  }
  const bool is_get = route->verb == http::verb::get;
  if (asks) return AllowedOrigins::describe(header, is_get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
  if (header.method() != route->verb && !(is_get && header.method() == http::verb::head)) {
    const std::string method(http::to_string(route->verb));
    HttpAnswer refused = refusal(405, cat(route->path, " takes ", method));
    refused.set(http::field::allow, is_get ? "GET, HEAD" : method);
    return refused;
  }
  if (draining_ && route->verb == http::verb::post) return refusal(503, "shutting down");
  return std::nullopt;
}

HttpRoutes::Reply HttpRoutes::respond(HttpRequest& request, HttpConnection& connection) {
  Routed routed;
  routed.answer = answer_header(request);
  if (!routed.answer) routed = co_await (this->*find(request)->reply)(request, connection);
  connection.unwatch();
  co_return routed;
}

// From the beginning, so that a client that hangs up cancels all that is done for it. HTTP/1.0 is watched only once
// generation begins, because it may shut its sending side as soon as it has sent the request.
std::shared_ptr<Waiting> HttpRoutes::watch(const HttpRequest& request, HttpConnection& connection) {
  auto waiting = std::make_shared<Waiting>(io_);
  if (request.version() >= 11) connection.watch(request.version(), [waiting] { waiting->hang_up(); });
  return waiting;
}

}  // namespace bascule::ref
