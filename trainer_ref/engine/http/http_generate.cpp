// /v1/completions and /v1/chat/completions: from a request to its answer, whole or as a stream of events.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/answer.h>
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_waiting.h>
#include <bascule/trainer_ref/engine/http/token_feed.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Waiting = WaitingFor<Completion>;

constexpr std::size_t kMostTokensAtOnce = 256;  // of a stream: what is written with one call
constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

void name_ignored(const std::vector<std::string>& ignored, HttpAnswer& answer) {
  if (!ignored.empty()) answer.set(kIgnoredFields, header_list(ignored));
}

}  // namespace

HttpRoutes::Reply HttpRoutes::complete(const HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_completion, request, connection);
}

HttpRoutes::Reply HttpRoutes::chat(const HttpRequest& request, HttpConnection& connection) {
  return generate(&parse_chat, request, connection);
}

HttpRoutes::Reply HttpRoutes::generate(Parse* parse, const HttpRequest& request, HttpConnection& connection) {
  Routed routed;
  absl::StatusOr<ApiRequest> wanted = parse(request.body(), card_, seeds_());
  if (!wanted.ok()) {
    routed.answer = refusal(wanted.status());
    co_return routed;
  }
  co_await settle();
  const bool streams = wanted->answer.stream;
  const std::size_t choices = wanted->completion.choices();
  const auto waiting = std::make_shared<Waiting>(io_);
  // Weak: the completion holds the feed, and would hold itself.
  const auto feed = std::make_shared<TokenFeed>([weak = std::weak_ptr(waiting)] {
    if (const std::shared_ptr<Waiting> alive = weak.lock()) Waiting::wake(alive);
  });
  if (streams) wanted->completion.sink = feed;
  const absl::StatusOr<RequestId> id = engine_.submit(std::move(wanted->completion), [waiting](Completion completion) {
    Waiting::tell(waiting, std::move(completion));
  });
  if (!id.ok()) {
    routed.answer = refusal(id.status());
    co_return routed;
  }
  Answer written(*id, std::move(wanted->answer), choices, card_);
  HttpAnswer head = answer(200, "");
  name_ignored(wanted->ignored, head);

  connection.watch(request.version(), [waiting] {
    waiting->hung_up = true;
    waiting->changed.cancel();
  });
  bool begun = false, lost = false;
  // A request that fails before its first token is refused like any other.
  while (streams && !lost) {
    co_await wait(*waiting, [&feed] { return !feed->empty(); });
    lost = waiting->hung_up;
    if (lost || (waiting->answer && !waiting->answer->status.ok() && !begun)) break;
    // Tokens are taken before the end is checked: the end comes after the last token.
    const bool ended = waiting->answer.has_value();
    const std::vector<NewToken> tokens = feed->take(kMostTokensAtOnce);
    const bool last = ended && feed->empty();
    std::string events = written.events(tokens);
    if (last) {
      const Completion& completion = *waiting->answer;
      events +=
          completion.status.ok()
              ? written.last_events(completion)
              : cat(event(error_json(http_status_of(completion.status), message_of(completion.status))), event(kDone));
    }
    if (!begun) {
      begun = true;
      head.set(boost::beast::http::field::content_type, kEventStream);
      head.set(boost::beast::http::field::cache_control, "no-cache");
      lost = !co_await connection.begin_stream(std::move(head), request.version(), request.keep_alive() && !draining_);
    }
    if (!lost && !events.empty()) lost = !co_await connection.write_stream(std::move(events));
    if (last && !lost) lost = !co_await connection.end_stream();
    if (last) {
      connection.unwatch();
      routed.goes_on = !lost;
      co_return routed;
    }
  }
  if (!lost) co_await wait(*waiting, [] { return false; });
  connection.unwatch();
  if (lost || !waiting->answer) {
    engine_.cancel(*id);
    routed.goes_on = false;
    co_return routed;
  }
  const Completion& completion = *waiting->answer;
  if (completion.status.ok()) {
    head.body() = written.whole(completion);
    routed.answer = std::move(head);
  } else {
    routed.answer = refusal(completion.status);
  }
  co_return routed;
}

}  // namespace bascule::ref
