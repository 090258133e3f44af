#include <bascule/sender/ranks/join.h>

#include <unistd.h>

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include <bascule/transport/posix/peer.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/channel.h>
#include <bascule/transport/wire/unshared_socket.h>

namespace bascule::inline v0 {
namespace {

namespace asio = boost::asio;

// UNAVAILABLE: no sender listens there yet.
absl::StatusOr<std::shared_ptr<Channel>> connect_to_rank_0(asio::io_context& io, const Endpoint& endpoint) {
  const std::filesystem::path path = endpoint.control_socket();
  const auto not_there = [&] { return unavailable("rank 0 does not listen at ", path.string()); };
  const absl::StatusOr<UniqueFd> folder = open_private_folder(endpoint.folder, endpoint.own_folder());
  if (absl::IsNotFound(folder.status())) return not_there();
  BASCULE_TRY(folder.status());
  const absl::StatusOr<UniqueFd> there = open_private_socket(folder->get(), path.filename(), endpoint.folder);
  if (absl::IsNotFound(there.status())) return not_there();
  BASCULE_TRY(there.status());
  BASCULE_ASSIGN(const std::string through, path_through(there->get()));
  asio::local::stream_protocol::socket socket(io);
  boost::system::error_code error;
  open_unshared(socket, asio::local::stream_protocol(), error);
  if (!error) socket.non_blocking(true, error);
  if (!error) socket.connect(asio::local::stream_protocol::endpoint(through), error);
  if (error == asio::error::connection_refused || error == asio::error::try_again ||
      error == asio::error::no_buffer_space || error == boost::system::errc::no_such_file_or_directory)
    return not_there();
  if (error) return errno_status(error.value(), cat("connect to ", path.string()));
  BASCULE_TRY(check_peer(socket.native_handle(), ::geteuid()));
  return std::make_shared<Channel>(Channel::Socket(std::move(socket)));
}

absl::Status broke_the_protocol(std::string_view expected, const Message& found, std::size_t descriptors) {
  return invalid_argument("rank 0 broke the protocol: expected ", expected, ", found ", name_of(found), " with ",
                          descriptors, " descriptors");
}

absl::StatusOr<RankLine> line_of(const Message& message, std::vector<UniqueFd>& descriptors) {
  if (const auto* const refused = std::get_if<Refused>(&message))
    return refused->final ? failed_precondition(refused->why) : unavailable(refused->why);
  if (!std::holds_alternative<RankWelcome>(message) || descriptors.size() != 1)
    return broke_the_protocol("rank_welcome with a socket", message, descriptors.size());
  return RankLine(ProcessFd(std::move(descriptors.front())));
}

absl::StatusOr<std::vector<RankStatus>> ranks_of(const Message& message, std::vector<UniqueFd>& descriptors) {
  if (const auto* const refused = std::get_if<Refused>(&message)) return failed_precondition(refused->why);
  const auto* const status = std::get_if<SenderStatus>(&message);
  if (status == nullptr) return broke_the_protocol("status", message, descriptors.size());
  return status->ranks;
}

// Sends `question` to rank 0, and returns what `answer_of` makes of the answer. UNAVAILABLE: none came in time.
template <typename Answer>
absl::StatusOr<Answer> ask_rank_0(const Endpoint& endpoint, const Message& question, absl::Duration patience,
                                  absl::StatusOr<Answer> (*answer_of)(const Message&, std::vector<UniqueFd>&)) {
  asio::io_context io(1);
  BASCULE_ASSIGN(const std::shared_ptr<Channel> asking, connect_to_rank_0(io, endpoint));
  std::optional<absl::StatusOr<Answer>> answer;
  asking->start(
      [&](const Message& message, std::vector<UniqueFd> descriptors) {
        if (!answer) answer = answer_of(message, descriptors);
      },
      [&](const absl::Status& why) {
        if (!answer) answer = unavailable("rank 0 did not answer: ", message_of(why));
      });
  asking->send(question);
  const Deadline deadline(patience);
  while (!answer && !deadline.passed()) io.run_one_until(deadline.at());
  asking->close();
  if (!answer) return unavailable("rank 0 did not answer within ", absl::FormatDuration(patience));
  return *std::move(answer);
}

}  // namespace

absl::StatusOr<RankLine> join_rank_0(const Endpoint& endpoint, std::uint32_t rank, std::uint32_t ranks,
                                     Deadline deadline, const std::function<bool()>& interrupted) {
  constexpr absl::Duration kPause = absl::Milliseconds(50);
  while (true) {
    absl::StatusOr<RankLine> line = ask_rank_0(endpoint, RankHello{.rank = rank, .ranks = ranks, .pid = ::getpid()},
                                               endpoint.suspect_after, line_of);
    if (line.ok() || !absl::IsUnavailable(line.status())) return line;
    if (deadline.passed())
      return deadline_exceeded("rank ", rank, " of ", ranks, " found no rank 0: ", message_of(line.status()),
                               "; rank 0 must call Sender::listen() with the same endpoint");
    if (interrupted && interrupted()) return absl::CancelledError("interrupted while rank 0 was awaited");
    absl::SleepFor(kPause);
  }
}

absl::StatusOr<std::vector<RankStatus>> ask_for_ranks(const Endpoint& endpoint) {
  return ask_rank_0(endpoint, StatusQuery{}, std::min(endpoint.suspect_after, absl::Seconds(1)), ranks_of);
}

absl::Status missing_ranks(std::span<const RankStatus> ranks) {
  std::string awaited, gone;
  for (const RankStatus& rank : ranks) {
    if (rank.state == "awaited") absl::StrAppend(&awaited, awaited.empty() ? "" : ", ", rank.rank);
    if (rank.gone_seconds)
      absl::StrAppend(&gone, gone.empty() ? "" : ", ", "rank ", rank.rank, " (pid ", rank.pid, ")");
  }
  if (awaited.empty() && gone.empty()) return absl::OkStatus();
  if (awaited.empty()) return deadline_exceeded("these ranks joined, and are gone: ", gone, "; start all ranks again");
  return deadline_exceeded("of ", ranks.size(), " ranks these have not joined: ", awaited,
                           gone.empty() ? "" : cat(", and these are gone again: ", gone),
                           "; every rank must call register_shards() with the same endpoint");
}

}  // namespace bascule::inline v0
