// A connector and senders that are not what they say: real TCP sockets of this machine.
#include "receiver/connector.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "support/port.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include "transport/text.h"

namespace bascule {
namespace {

using absl::StatusCode;
using boost::asio::ip::tcp;
using test::IsOk;
using test::patience;
using test::silence;
using test::StatusIs;
using testing::HasSubstr;

const Token kToken("open sesame");

class ConnectorTest : public testing::Test {
 protected:
  void listen() {
    acceptor_.open(tcp::v4());
    acceptor_.set_option(boost::asio::socket_base::reuse_address(true));
    acceptor_.bind({boost::asio::ip::address_v4::loopback(), port_.number()});
    acceptor_.listen();
  }
  void parse(std::string_view options = "digest=on") {
    endpoint_ = Endpoint::parse(cat("fake://127.0.0.1:", port_.number(), "?state=/x&", options)).value();
  }
  // Connects, with a sender of the test's own at the other end, which says what `answer` says to each message.
  using Answer = std::function<std::optional<Message>(const Message&)>;
  absl::StatusOr<std::shared_ptr<Channel>> connect(std::optional<Message> first, const Answer& answer) {
    std::shared_ptr<Channel> sender;
    if (acceptor_.is_open())
      acceptor_.async_accept([&](const boost::system::error_code& error, tcp::socket socket) {
        if (error) return;
        sender = std::make_shared<Channel>(Channel::Socket(std::move(socket)));
        sender->start(
            [&](const Message& message, const std::vector<UniqueFd>&) {
              if (const std::optional<Message> said = answer(message)) sender->send(*said);
            },
            [](const absl::Status&) {});
        if (first) sender->send(*first);
      });
    std::optional<absl::StatusOr<std::shared_ptr<Channel>>> result;
    Connector connector(io_, endpoint_, kToken);
    connector.connect([&](absl::StatusOr<std::shared_ptr<Channel>> done) { result = std::move(done); });
    const auto end = Deadline(patience()).at();
    while (!result && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_until(end);
    }
    if (!result) return absl::InternalError("it never came to an end");
    return *std::move(result);
  }
  static Answer nothing() {
    return [](const Message&) { return std::nullopt; };
  }

  test::ReservedPort port_;
  boost::asio::io_context io_;
  tcp::acceptor acceptor_{io_};
  Endpoint endpoint_;
};

TEST_F(ConnectorTest, TwoThatKnowTheTokenMeet) {
  listen();
  parse();
  Handshake sender(Role::kSender, kToken);
  const auto channel = connect(sender.challenge(), [&](const Message& message) { return *sender.on_message(message); });
  ASSERT_THAT(channel, IsOk());
  EXPECT_TRUE((*channel)->open());
}

TEST_F(ConnectorTest, ASenderThatDoesNotKnowTheTokenIsNotSpokenTo) {
  listen();
  parse();
  Handshake impostor(Role::kSender, Token("guess"));
  std::string proof;
  EXPECT_THAT(connect(impostor.challenge(),
                      [&](const Message& message) {
                        proof = std::get<Proof>(message).mac;
                        return Proven{.mac = std::string(kAuthBytes, 'x')};
                      }),
              StatusIs(StatusCode::kUnauthenticated, std::string(kNotAuthenticated)));
  EXPECT_THAT(connect(impostor.challenge(),
                      [&](const Message& message) { return Proven{.mac = std::get<Proof>(message).mac}; }),
              StatusIs(StatusCode::kUnauthenticated, std::string(kNotAuthenticated)))
      << "its own proof, reflected";
  EXPECT_THAT(connect(Heartbeat{}, nothing()), StatusIs(StatusCode::kUnauthenticated, std::string(kNotAuthenticated)));
}

TEST_F(ConnectorTest, ARefusalIsHandedOn) {
  listen();
  parse();
  EXPECT_THAT(connect(Refused{.why = "no", .final = true}, nothing()), StatusIs(StatusCode::kUnauthenticated, "no"));
  EXPECT_THAT(connect(Refused{.why = "too many", .final = false}, nothing()),
              StatusIs(StatusCode::kUnavailable, "too many"));
}

TEST_F(ConnectorTest, ASenderThatSaysNothingIsGivenUp) {
  listen();
  parse(cat("heartbeat=1ms&suspect_after=", absl::ToInt64Milliseconds(silence()), "ms"));
  EXPECT_THAT(connect(std::nullopt, nothing()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no connection to 127.0.0.1:")));
}

TEST_F(ConnectorTest, NobodyIsThere) {
  parse();
  EXPECT_THAT(connect(std::nullopt, nothing()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no sender is listening at 127.0.0.1:")));
  const std::string no_name(64, 'x');  // a label too long to be asked for
  endpoint_ = Endpoint::parse(cat("fake://", no_name, ":1?state=/x")).value();
  EXPECT_THAT(connect(std::nullopt, nothing()),
              StatusIs(StatusCode::kUnavailable, HasSubstr(cat("look up the host ", no_name))));
}

}  // namespace
}  // namespace bascule
