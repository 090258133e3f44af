#include <bascule/receiver/status_query.h>

#include <utility>

#include <bascule/receiver/connector.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

absl::StatusOr<Answer> answer_of(Message message, std::vector<UniqueFd> descriptors) {
  if (const auto* refused = std::get_if<Refused>(&message))
    return failed_precondition("the sender refused the status query: ", refused->why);
  auto* const status = std::get_if<SenderStatus>(&message);
  if (status == nullptr)
    return invalid_argument("the sender broke the protocol: expected status, found ", name_of(message));
  return Answer{.status = std::move(*status), .descriptors = std::move(descriptors)};
}

}  // namespace

absl::StatusOr<Answer> query_status(const Endpoint& endpoint, std::optional<Token> token) {
  boost::asio::io_context io(1);
  std::optional<absl::StatusOr<Answer>> answer;
  std::shared_ptr<Channel> asking;
  Connector connector(io, HandlerScope([&](const absl::Status& why) { answer = why; }), endpoint, std::move(token));
  connector.connect([&](absl::StatusOr<std::shared_ptr<Channel>> channel) {
    if (!channel.ok()) {
      answer = channel.status();
      return;
    }
    asking = *std::move(channel);
    asking->start(
        [&](Message message, std::vector<UniqueFd> descriptors) {
          if (!answer) answer = answer_of(std::move(message), std::move(descriptors));
        },
        [&](const absl::Status& why) {
          if (!answer) answer = annotate(why, "the sender");
        });
    asking->send(StatusQuery{});
  });
  const absl::Duration patience = 2 * endpoint.suspect_after;  // the connector's own deadline is half of it
  const Deadline deadline(patience);
  while (!answer && !deadline.passed()) io.run_one_until(deadline.at());
  if (asking) asking->close();
  if (!answer)
    return unavailable("the sender at ", endpoint.place(), " did not answer within ", absl::FormatDuration(patience),
                       " (twice suspect_after)");
  return *std::move(answer);
}

}  // namespace bascule::inline v0
