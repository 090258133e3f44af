// /v1/completions, /v1/chat/completions, and /generate and /chat of other servers: from a request to its answer, whole
// or as a stream of events.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/answer.h>
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_work.h>
#include <bascule/trainer_ref/engine/http/token_feed.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kMostTokensAtOnce = 256;  // of a stream: what is written with one call
constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

void name_ignored(const std::vector<std::string>& ignored, HttpAnswer& answer) {
  if (!ignored.empty()) answer.set(kIgnoredFields, header_list(ignored));
}

// About how many bytes of JSON an answer has for each token.
std::size_t bytes_per_token(const std::optional<std::int64_t>& logprobs) {
  return 8 + (logprobs ? 64 * static_cast<std::size_t>(1 + *logprobs) : 0);
}

// The same of the prompts in all of its choices, or in one event of a stream, which may begin several choices.
std::size_t prompt_bytes(const ApiRequest& request) {
  std::size_t tokens = 0;
  for (const std::vector<std::int64_t>& prompt : request.answer.prompts) tokens += prompt.size();
  return tokens * static_cast<std::size_t>(request.completion.n) * bytes_per_token(request.completion.prompt_logprobs);
}

std::size_t tokens_of(const Completion& completion) {
  std::size_t tokens = 0;
  for (const auto& sequence : completion.choices) tokens += sequence->generated();
  return tokens;
}

}  // namespace

HttpRoutes::Reply HttpRoutes::complete(HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_completion, request, connection);
}

HttpRoutes::Reply HttpRoutes::chat(HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_chat, request, connection);
}

HttpRoutes::Reply HttpRoutes::generate_once(HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_generate, request, connection);
}

HttpRoutes::Reply HttpRoutes::trl_chat(HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_trl_chat, request, connection);
}

HttpRoutes::Reply HttpRoutes::generate(Parse* parse, HttpRequest& request, HttpConnection& connection) {
  Routed routed;
  const auto waiting = watch(request, connection);
  const std::size_t body_bytes = request.body().size();
  OffThread<ApiRequest> read = [parse, body = std::move(request.body()), &card = card_,
                                seed = seeds_()](const std::stop_token& stop) { return parse(body, card, seed, stop); };
  absl::StatusOr<ApiRequest> wanted = co_await off_thread(pool_, waiting, body_bytes, std::move(read));
  if (!wanted.ok()) {
    routed.goes_on = !waiting->hung_up;
    if (routed.goes_on) routed.answer = refusal(wanted.status());
    co_return routed;
  }
  co_await settle();
  const bool streams = wanted->answer.stream;
  const std::size_t choices = wanted->completion.choices();
  const std::size_t bytes_of_prompts = prompt_bytes(*wanted), bytes_each = bytes_per_token(wanted->answer.logprobs);
  const auto feed = std::make_shared<TokenFeed>([waiting] { Waiting::wake(waiting); });
  if (streams) wanted->completion.sink = feed;
  const Promised<Completion> completed(waiting);
  const absl::StatusOr<RequestId> id = engine_.submit(
      std::move(wanted->completion), [completed](Completion completion) { completed.tell(std::move(completion)); });
  if (!id.ok()) {
    routed.answer = refusal(id.status());
    co_return routed;
  }
  // Shared with the threads that write large answers.
  const auto written = std::make_shared<Answer>(*id, std::move(wanted->answer), choices, card_);
  HttpAnswer head = answer(200, "");
  name_ignored(wanted->ignored, head);

  if (request.version() < 11) connection.watch(request.version(), [waiting] { waiting->hang_up(); });
  bool begun = false, lost = false;
  // A request that fails before its first token is refused like any other.
  while (streams && !lost) {
    co_await wait(*waiting, [&] { return completed.get() != nullptr || !feed->empty(); });
    lost = waiting->hung_up;
    if (lost || (completed.get() != nullptr && !completed.get()->status.ok() && !begun)) break;
    // Tokens are taken before the end is checked: the end comes after the last token.
    const bool ended = completed.get() != nullptr;
    std::vector<NewToken> tokens = feed->take(kMostTokensAtOnce);
    const bool last = ended && feed->empty();
    const std::size_t bytes = bytes_of_prompts + tokens.size() * bytes_each;
    std::function<std::string()> make = [written, completed, last, tokens = std::move(tokens)] {
      std::string made = written->events(tokens);
      if (!last) return made;
      const Completion& completion = *completed.get();
      if (completion.status.ok()) return made + written->last_events(completion);
      return cat(made, event(error_json(http_status_of(completion.status), message_of(completion.status))),
                 event(kDone));
    };
    std::string events = co_await make_text(pool_, waiting, bytes, std::move(make));
    lost = waiting->hung_up;
    if (lost) break;
    if (!begun) {
      begun = true;
      head.set(boost::beast::http::field::content_type, kEventStream);
      head.set(boost::beast::http::field::cache_control, "no-cache");
      lost = !co_await connection.begin_stream(std::move(head), request.version(), request.keep_alive() && !draining_);
    }
    if (!lost && !events.empty()) lost = !co_await connection.write_stream(std::move(events));
    if (last && !lost) lost = !co_await connection.end_stream();
    if (last) {
      routed.goes_on = !lost;
      co_return routed;
    }
  }
  const auto is_complete = [&] { return completed.get() != nullptr; };
  if (!lost) co_await wait(*waiting, is_complete);
  if (lost || !is_complete()) {
    engine_.cancel(*id);
    routed.goes_on = false;
    co_return routed;
  }
  const Completion& completion = *completed.get();
  if (!completion.status.ok()) {
    routed.answer = refusal(completion.status);
    co_return routed;
  }
  const std::size_t bytes = bytes_of_prompts + tokens_of(completion) * bytes_each;
  std::function<std::string()> make = [written, completed] { return written->whole(*completed.get()); };
  std::string whole = co_await make_text(pool_, waiting, bytes, std::move(make));
  head.body() = std::move(whole);
  routed.goes_on = !waiting->hung_up;
  if (routed.goes_on) routed.answer = std::move(head);
  co_return routed;
}

}  // namespace bascule::ref
