// The routes that generate nothing: models and tokens, and the engine's state.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_target.h>
#include <bascule/trainer_ref/engine/http/http_work.h>
#include <bascule/trainer_ref/http/exposition.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kCommitWait{500}, kCommitStep{1};

Routed routed(HttpAnswer answer, const std::vector<std::string>& ignored = {}) {
  if (!ignored.empty()) answer.set(kIgnoredFields, header_list(ignored));
  return {.answer = std::move(answer)};
}

}  // namespace

// A client that detects an ack may send a request before the commit that sent the ack has updated what is served. If
// the commit lasts, the answer is the previous version.
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

HttpRoutes::Reply HttpRoutes::root(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return routed(answer(200, "bascule-engine serves OpenAI's interface below /v1, as /v1/models\n", "text/plain"));
}

HttpRoutes::Reply HttpRoutes::version(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return routed(answer(200, version_json()));
}

HttpRoutes::Reply HttpRoutes::models(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return routed(answer(200, models_json(card_)));
}

HttpRoutes::Reply HttpRoutes::one_model(HttpRequest& request, HttpConnection& /*connection*/) {
  constexpr std::string_view kPath = "/v1/models/";
  const std::string_view target = target_of(request);
  std::string id = without_percents(target.substr(kPath.size(), target.find('?') - kPath.size()));
  if (!find_model(card_, id, "").ok() && id.ends_with('/')) id.pop_back();
  if (const auto found = find_model(card_, id, cat("\"", id, "\"")); !found.ok())
    co_return routed(refusal(found.status()));
  co_return routed(answer(200, one_model_json(card_, id.empty() ? card_.id : id)));
}

HttpRoutes::Reply HttpRoutes::convert(Convert* convert, HttpRequest& request, HttpConnection& connection) {
  const auto waiting = watch(request, connection);
  const std::size_t bytes = request.body().size();
  OffThread<Converted> job = [convert, body = std::move(request.body()), &card = card_](const std::stop_token& stop) {
    return convert(body, card, stop);
  };
  const absl::StatusOr<Converted> converted = co_await off_thread(pool_, waiting, bytes, std::move(job));
  Routed gone;
  gone.goes_on = false;
  if (waiting->hung_up) co_return gone;
  if (!converted.ok()) co_return routed(refusal(converted.status()));
  co_return routed(answer(200, converted->answer), converted->ignored);
}

HttpRoutes::Reply HttpRoutes::tokenize(HttpRequest& request, HttpConnection& connection) {
  return convert(
      [](std::string_view body, const ModelCard& card, const std::stop_token& stop) -> absl::StatusOr<Converted> {
        BASCULE_ASSIGN(const TokenizeRequest wanted, parse_tokenize(body, card, stop));
        return Converted{tokenize_json(wanted, card), wanted.ignored};
      },
      request, connection);
}

HttpRoutes::Reply HttpRoutes::detokenize(HttpRequest& request, HttpConnection& connection) {
  return convert(
      [](std::string_view body, const ModelCard& card, const std::stop_token& /*stop*/) -> absl::StatusOr<Converted> {
        BASCULE_ASSIGN(const DetokenizeRequest wanted, parse_detokenize(body, card));
        return Converted{detokenize_json(wanted, card), wanted.ignored};
      },
      request, connection);
}

HttpRoutes::Reply HttpRoutes::tokenizer_info(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  if (!card_.tokenizer)
    co_return routed(refusal(404, cat("this model's text cannot be read here (", message_of(card_.no_text), ")")));
  co_return routed(answer(200, tokenizer_info_json(card_)));
}

HttpRoutes::Reply HttpRoutes::health(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_await settle();
  const EngineStats stats = engine_.stats();
  const char* state = draining_              ? "draining"
                      : stats.asleep         ? "sleeping"
                      : stats.paused         ? "paused"
                      : stats.served.ready   ? "serving"
                      : stats.served.version ? "failed"
                                             : "joining";
  const bool serves = stats.served.ready && !stats.asleep && !draining_;
  co_return routed(answer(serves ? 200 : 503, health_json(stats, state, card_)));
}

HttpRoutes::Reply HttpRoutes::metrics(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_await settle();
  co_return routed(answer(200, metrics_text(engine_.stats(), card_), kExpositionType));
}

}  // namespace bascule::ref
