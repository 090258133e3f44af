// The routes that generate nothing: models and tokens, and the engine's state.
#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_work.h>
#include <bascule/trainer_ref/http/exposition.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kCommitWait{500}, kCommitStep{1};

std::string_view target_of(const HttpHeader& header) { return {header.target().data(), header.target().size()}; }

Routed routed(HttpAnswer answer, const std::vector<std::string>& ignored = {}) {
  if (!ignored.empty()) answer.set(kIgnoredFields, header_list(ignored));
  return {.answer = std::move(answer)};
}

// A part of a path, in which clients may write any byte as %XX: openai writes a name's slash so.
std::string without_percents(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      plain += static_cast<char>(byte);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
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

HttpRoutes::Reply HttpRoutes::sleep(HttpRequest& request, HttpConnection& /*connection*/) {
  return rest(true, target_of(request));
}

HttpRoutes::Reply HttpRoutes::wake_up(HttpRequest& request, HttpConnection& /*connection*/) {
  return rest(false, target_of(request));
}

HttpRoutes::Reply HttpRoutes::is_sleeping(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return routed(answer(200, sleeping_json(engine_.stats())));
}

// /sleep?mode=wait|abort and /wake_up: answered once done.
HttpRoutes::Reply HttpRoutes::rest(bool sleep, std::string_view target) {
  const std::string mode = query_value(target, "mode").value_or("wait");
  if (mode != "wait" && mode != "abort")
    co_return routed(refusal(400, cat("mode: expected wait (running requests finish first) or abort, found ", mode)));
  const auto waiting = std::make_shared<Waiting>(io_);
  const Promised<absl::Status> promised(waiting);
  const auto done = [promised](const absl::Status& status) { promised.tell(status); };
  if (sleep) {
    engine_.sleep(mode == "abort", done);
  } else {
    engine_.wake_up(done);
  }
  co_await wait(*waiting, [&] { return promised.get() != nullptr; });
  const absl::Status& status = *promised.get();
  if (!status.ok()) co_return routed(refusal(status));
  co_return routed(answer(200, sleeping_json(engine_.stats())));
}

}  // namespace bascule::ref
