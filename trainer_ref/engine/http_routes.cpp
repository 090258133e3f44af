#include <bascule/trainer_ref/engine/http_routes.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "absl/strings/str_join.h"
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::chrono::milliseconds kCommitWait{500}, kCommitStep{1};

auto with_error(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

std::string_view target_of(const HttpHeader& header) { return {header.target().data(), header.target().size()}; }

std::string_view path_of(const HttpHeader& header) {
  const std::string_view target = target_of(header);
  std::string_view path = target.substr(0, target.find('?'));
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

// The value of `name` in a target's query.
std::optional<std::string> query_value(std::string_view target, std::string_view name) {
  std::size_t begin = target.find('?');
  while (begin != target.npos) {
    const std::string_view rest = target.substr(begin + 1);
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      return std::string(pair.substr(name.size() + 1));
    begin = target.find('&', begin + 1);
  }
  return std::nullopt;
}

// What the engine will say, and is waited for. Shared with its callback and with the watch on the socket.
template <typename Answer>
struct WaitingFor {
  explicit WaitingFor(asio::io_context& io) : io(io), changed(io) {}
  asio::io_context& io;
  asio::steady_timer changed;
  std::optional<Answer> answer;
  bool hung_up = false;

  // From the engine's thread.
  static void tell(const std::shared_ptr<WaitingFor>& waiting, Answer answer) {
    asio::post(waiting->io, [waiting, answer = std::move(answer)]() mutable {
      waiting->answer = std::move(answer);
      waiting->changed.cancel();
    });
  }
};
using Waiting = WaitingFor<Completion>;

template <typename Answer>
asio::awaitable<void> wait(WaitingFor<Answer>& waiting) {
  while (!waiting.answer && !waiting.hung_up) {
    error_code error;
    waiting.changed.expires_after(std::chrono::minutes(1));
    co_await waiting.changed.async_wait(with_error(error));
  }
}

}  // namespace

struct HttpRoutes::Route {
  std::string_view path;
  http::verb verb;
  bool for_watchers;
  Reply (HttpRoutes::*reply)(const HttpRequest& request, HttpConnection& connection);
};

std::span<const HttpRoutes::Route> HttpRoutes::routes() {
  using http::verb;
  static constexpr std::array<Route, 7> kRoutes{{
      {"/v1/completions", verb::post, false, &HttpRoutes::complete},
      {"/v1/models", verb::get, false, &HttpRoutes::models},
      {"/health", verb::get, true, &HttpRoutes::health},
      {"/metrics", verb::get, true, &HttpRoutes::metrics},
      {"/sleep", verb::post, false, &HttpRoutes::sleep},
      {"/wake_up", verb::post, false, &HttpRoutes::wake_up},
      {"/is_sleeping", verb::get, true, &HttpRoutes::is_sleeping},
  }};
  return kRoutes;
}

const HttpRoutes::Route* HttpRoutes::find(const HttpHeader& header) {
  const std::string_view path = path_of(header);
  for (const Route& route : routes())
    if (route.path == path) return &route;
  return nullptr;
}

HttpRoutes::HttpRoutes(asio::io_context& io, Engine& engine, ModelCard card)
    : io_(io), engine_(engine), card_(std::move(card)) {}

bool HttpRoutes::for_watchers(const HttpHeader& header) {
  const Route* route = find(header);
  return route != nullptr && route->for_watchers;
}

std::optional<HttpAnswer> HttpRoutes::refuse(const HttpHeader& header) const {
  const Route* route = find(header);
  if (route == nullptr) {
    const auto name = [](std::string* text, const Route& each) { text->append(each.path); };
    return refusal(404, cat("no ", path_of(header), " here; there are ", absl::StrJoin(routes(), ", ", name)));
  }
  if (header.method() != route->verb) {
    const std::string method(http::to_string(route->verb));
    HttpAnswer refused = refusal(405, cat(route->path, " takes ", method));
    refused.set(http::field::allow, method);
    return refused;
  }
  if (draining_ && route->verb == http::verb::post) return refusal(503, "shutting down");
  return std::nullopt;
}

HttpRoutes::Reply HttpRoutes::respond(const HttpRequest& request, HttpConnection& connection) {
  std::optional<HttpAnswer> reply = refuse(request);
  if (!reply) reply = co_await (this->*find(request)->reply)(request, connection);
  co_return reply;
}

// A client that hears of an ack may ask at once, before the commit that sent it has said what is served now. What was
// served before is said where the commit lasts.
asio::awaitable<void> HttpRoutes::settle() {
  const std::uint64_t begun = engine_.commits_begun();
  const auto deadline = std::chrono::steady_clock::now() + kCommitWait;
  asio::steady_timer step(io_);
  while (engine_.commits_ended() < begun && std::chrono::steady_clock::now() < deadline) {
    error_code error;
    step.expires_after(kCommitStep);
    co_await step.async_wait(with_error(error));
  }
}

HttpRoutes::Reply HttpRoutes::complete(const HttpRequest& request, HttpConnection& connection) {
  absl::StatusOr<CompletionRequest> wanted = parse_completion(request.body(), card_, seeds_());
  if (!wanted.ok()) co_return refusal(wanted.status());
  co_await settle();
  const std::int64_t n = wanted->n;
  const auto waiting = std::make_shared<Waiting>(io_);
  const absl::StatusOr<RequestId> id = engine_.submit(
      *std::move(wanted), [waiting](Completion completion) { Waiting::tell(waiting, std::move(completion)); });
  if (!id.ok()) co_return refusal(id.status());

  connection.watch([waiting] {
    waiting->hung_up = true;
    waiting->changed.cancel();
  });
  co_await wait(*waiting);
  connection.unwatch();
  if (!waiting->answer) {
    engine_.cancel(*id);
    co_return std::nullopt;
  }
  const Completion& completion = *waiting->answer;
  if (!completion.status.ok()) co_return refusal(completion.status);
  co_return answer(200, completion_json(*id, completion, n, card_));
}

HttpRoutes::Reply HttpRoutes::models(const HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return answer(200, models_json(card_));
}

HttpRoutes::Reply HttpRoutes::health(const HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_await settle();
  const EngineStats stats = engine_.stats();
  const char* state = draining_              ? "draining"
                      : stats.asleep         ? "sleeping"
                      : stats.served.ready   ? "serving"
                      : stats.served.version ? "failed"
                                             : "joining";
  const bool serves = stats.served.ready && !stats.asleep && !draining_;
  co_return answer(serves ? 200 : 503, health_json(stats, state, card_));
}

HttpRoutes::Reply HttpRoutes::metrics(const HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_await settle();
  co_return answer(200, metrics_text(engine_.stats(), card_), "text/plain; version=0.0.4");
}

HttpRoutes::Reply HttpRoutes::sleep(const HttpRequest& request, HttpConnection& /*connection*/) {
  HttpAnswer done = co_await rest(true, target_of(request));
  co_return done;
}

HttpRoutes::Reply HttpRoutes::wake_up(const HttpRequest& request, HttpConnection& /*connection*/) {
  HttpAnswer done = co_await rest(false, target_of(request));
  co_return done;
}

HttpRoutes::Reply HttpRoutes::is_sleeping(const HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return answer(200, sleeping_json(engine_.stats()));
}

// /sleep?mode=wait|abort and /wake_up: answered when it is done.
asio::awaitable<HttpAnswer> HttpRoutes::rest(bool sleep, std::string_view target) {
  const std::string mode = query_value(target, "mode").value_or("wait");
  if (mode != "wait" && mode != "abort")
    co_return refusal(400, cat("mode: expected wait (running requests finish first) or abort, found ", mode));
  const auto waiting = std::make_shared<WaitingFor<absl::Status>>(io_);
  const auto done = [waiting](const absl::Status& status) { waiting->tell(waiting, status); };
  if (sleep) {
    engine_.sleep(mode == "abort", done);
  } else {
    engine_.wake_up(done);
  }
  co_await wait(*waiting);
  const absl::Status& status = *waiting->answer;
  if (!status.ok()) co_return refusal(status);
  co_return answer(200, sleeping_json(engine_.stats()));
}

}  // namespace bascule::ref
