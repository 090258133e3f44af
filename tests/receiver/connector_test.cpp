// A connector and senders that are not what they claim, over real TCP sockets of this machine.
#include <bascule/receiver/connector.h>

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "support/port.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include "support/tls_peer.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using boost::asio::ip::tcp;
using test::IsOk;
using test::kTlsToken;
using test::patience;
using test::silence;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
  // Connects to the test's own sender; nullopt: no process answers.
  absl::StatusOr<std::shared_ptr<Channel>> connect(const std::optional<test::TlsPeerOptions>& sender) {
    peer_.reset();
    if (acceptor_.is_open())
      acceptor_.async_accept([&](const boost::system::error_code& error, tcp::socket socket) {
        if (!error) accepted_.reset(socket.release());
        if (!error && sender) peer_ = std::make_unique<test::TlsPeer>(std::move(accepted_), *sender);
      });
    std::optional<absl::StatusOr<std::shared_ptr<Channel>>> result;
    Connector connector(io_, HandlerScope([&](const absl::Status& why) { result = why; }), endpoint_, Token(kTlsToken));
    connector.connect([&](absl::StatusOr<std::shared_ptr<Channel>> done) { result = std::move(done); });
    const auto end = Deadline(patience()).at();
    while (!result && std::chrono::steady_clock::now() < end) {
      if (peer_) peer_->pump();
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(5));
    }
    if (!result) return absl::InternalError("it never came to an end");
    return *std::move(result);
  }

  test::ReservedPort port_;
  boost::asio::io_context io_;
  tcp::acceptor acceptor_{io_};
  Endpoint endpoint_;
  UniqueFd accepted_;
  std::unique_ptr<test::TlsPeer> peer_;
};

TEST_F(ConnectorTest, TwoThatKnowTheTokenMeet) {
  listen();
  parse();
  const auto channel = connect(test::TlsPeerOptions{.server = true, .token = kTlsToken});
  ASSERT_THAT(channel, IsOk());
  EXPECT_TRUE((*channel)->open());
  (*channel)->start([](const Message&, const std::vector<UniqueFd>&) {}, [](const absl::Status&) {});
  (*channel)->send(StatusQuery{});
  for (const Deadline deadline(patience()); peer_->messages().empty() && !deadline.passed();) peer_->pump();
  ASSERT_FALSE(peer_->messages().empty());
  EXPECT_TRUE(std::holds_alternative<StatusQuery>(peer_->messages().front()));
}

TEST_F(ConnectorTest, ASenderThatDoesNotKnowTheTokenIsNotSpokenTo) {
  listen();
  parse();
  const std::vector<test::TlsPeerOptions> impostors = {
      {.server = true, .certificate = true},  // OpenSSL by itself would take it
      {.server = true},
      {.server = true, .token = "correct horse and so on", .certificate = true},
      {.server = true, .token = kTlsToken, .scheme = "other"},  // a sender of another endpoint, through a relay
  };
  for (std::size_t i = 0; i < impostors.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_THAT(connect(impostors[i]),
                StatusIs(StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("the sender: authentication failed: the other end does not know this token"),
                               HasSubstr("set the same token on both ends"), Not(HasSubstr("horse")))));
    for (int turn = 0; turn < 3; ++turn) peer_->pump();
    EXPECT_FALSE(peer_->open());
    EXPECT_TRUE(peer_->heard().empty());
  }
}

TEST_F(ConnectorTest, ASenderThatSaysNothingOrStopsHalfWayIsGivenUp) {
  listen();
  parse(cat("heartbeat=1ms&suspect_after=", absl::ToInt64Milliseconds(silence()), "ms"));
  const auto given_up = StatusIs(StatusCode::kUnavailable, HasSubstr("no connection to 127.0.0.1:"));
  EXPECT_THAT(connect(std::nullopt), given_up);
  test::TlsPeerOptions half = {.server = true, .token = kTlsToken};
  half.first_bytes = 50;
  EXPECT_THAT(connect(half), given_up);
}

TEST_F(ConnectorTest, NobodyIsThere) {
  parse();
  EXPECT_THAT(connect(std::nullopt),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no sender is listening at 127.0.0.1:")));
  const std::string no_name(64, 'x');  // a label too long to look up
  endpoint_ = Endpoint::parse(cat("fake://", no_name, ":1?state=/x")).value();
  EXPECT_THAT(connect(std::nullopt), StatusIs(StatusCode::kUnavailable, HasSubstr(cat("look up the host ", no_name))));
}

}  // namespace
}  // namespace bascule
