// Which peers a handshake accepts.
#include "channel_tls_fixture.h"  // first: see there

#include <signal.h>
#include <sys/wait.h>

#include "sample_messages.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::kTlsToken;
using test::StatusIs;
using test::TlsPeer;
using testing::AllOf;
using testing::HasSubstr;

using TlsHandshakeTest = ChannelTlsTest;

// A peer that requires another key exchange makes the handshake restart.
TEST_F(TlsHandshakeTest, ASecondOfferIsAsGoodAsTheFirst) {
  TlsPeer::Options picky = sender();
  picky.groups = "P-256";
  TlsPeer peer = make_peer(picky);
  Heard heard;
  const auto channel = meet(peer, heard, Role::kReceiver);
  EXPECT_EQ(peer.group(), "EC");
  peer.say(Bye{});
  EXPECT_TRUE(pump_until(peer, [&] { return heard.messages.size() == 1; }));
}

// Why this matters: at its default settings OpenSSL's client, told to verify nothing, accepts such a server.
TEST_F(TlsHandshakeTest, AServerWithACertificateAndNoTokenIsRefused) {
  const TlsPeer::Options rogue = {.server = true, .certificate = true};
  {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    TlsPeer server(UniqueFd(ends[0]), rogue);
    TlsPeer::Options trusting = worker();
    trusting.believes_anybody = true;
    TlsPeer client(UniqueFd(ends[1]), trusting);
    for (int i = 0; i < 10; ++i) client.pump(), server.pump();
    EXPECT_TRUE(client.open() && server.open()) << "the rogue is not one";
  }
  TlsPeer server = make_peer(rogue);
  start(Role::kReceiver);
  EXPECT_THAT(result_with(server),
              StatusIs(StatusCode::kUnauthenticated, AllOf(HasSubstr("the other end does not know this token"),
                                                           HasSubstr("the same token on both ends"))));
  server.pump();
  EXPECT_FALSE(server.open());
}

TEST_F(TlsHandshakeTest, AServerThatCannotUseTheKeyIsRefused) {
  const std::vector<TlsPeer::Options> rogues = {
      {.server = true},                                                           // nothing at all
      {.server = true, .token = "correct horse and so on"},                       // another token
      {.server = true, .token = kTlsToken, .scheme = "shm"},                      // a sender elsewhere, relayed
      {.server = true, .token = "correct horse and so on", .certificate = true},  // and with a certificate
      {.server = true, .token = kTlsToken, .scheme = "shm", .certificate = true},
  };
  for (std::size_t i = 0; i < rogues.size(); ++i) {
    SCOPED_TRACE(i);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    TlsPeer server(UniqueFd(ends[1]), rogues[i]);
    result_.reset();
    start(Role::kReceiver);
    EXPECT_THAT(result_with(server), StatusIs(StatusCode::kUnauthenticated, HasSubstr("does not know this token")));
    server.pump();
    EXPECT_FALSE(server.open());
  }
}

TEST_F(TlsHandshakeTest, AClientThatCannotUseTheKeyIsRefusedAndTold) {
  const std::vector<TlsPeer::Options> rogues = {
      {.believes_anybody = true},
      {.certificate = true, .believes_anybody = true},
      {.token = "correct horse and so on"},
      {.token = kTlsToken, .scheme = "shm"},
  };
  for (std::size_t i = 0; i < rogues.size(); ++i) {
    SCOPED_TRACE(i);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    TlsPeer client(UniqueFd(ends[1]), rogues[i]);
    result_.reset();
    start(Role::kSender);
    EXPECT_THAT(result_with(client), StatusIs(StatusCode::kUnauthenticated, HasSubstr("does not know this token")));
    EXPECT_TRUE(pump_until(client, [&] { return client.hung_up(); }));
    EXPECT_FALSE(client.open());
    EXPECT_THAT(client.error(), HasSubstr("alert"));
  }
}

TEST_F(TlsHandshakeTest, APeerThatSpeaksSomethingElseIsRefusedWithoutItsMessageBeingRead) {
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
    result_.reset();
    write_bytes(framed(sample_hello()));
    start(role);
    ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
    EXPECT_THAT(result_->status(), StatusIs(StatusCode::kUnauthenticated, HasSubstr("(TLS: ")));
  }
}

TEST_F(TlsHandshakeTest, APeerThatHangsUpInTheHandshakeIsNoLiar) {
  TlsPeer peer = make_peer(worker());
  peer.at_most(100);
  start(Role::kSender);
  peer.pump();
  peer.hang_up();
  EXPECT_THAT(result_with(peer), StatusIs(StatusCode::kUnavailable, HasSubstr("hung up during the TLS handshake")));
}

// A first message with a stated length of 128 KiB, in records of one byte: OpenSSL would accept them all, at 100 ns or
// more each, while no other peer is served.
TEST_F(TlsHandshakeTest, AHandshakeWithoutAnEndIsCutShort) {
  std::vector<std::uint8_t> bytes;
  const auto add_record = [&](std::uint8_t byte) { bytes.insert(bytes.end(), {22, 3, 1, 0, 1, byte}); };
  for (const std::uint8_t byte : std::vector<std::uint8_t>{1, 1, 0xFF, 0xFF, 3, 3}) add_record(byte);
  while (bytes.size() < 100'000) add_record(0);
  write_bytes(bytes);
  start(Role::kSender);
  ASSERT_TRUE(run_until([&] { return result_.has_value(); }));
  EXPECT_THAT(result_->status(), StatusIs(StatusCode::kUnauthenticated, HasSubstr("goes on after 16384 bytes")));
}

TEST_F(TlsHandshakeTest, AHandshakeThatIsClosedCallsNobody) {
  TlsPeer peer = make_peer(worker());
  start(Role::kSender);
  run_ready();
  handshake_->close();
  EXPECT_TRUE(pump_until(peer, [&] { return peer.hung_up(); }));
  EXPECT_FALSE(result_.has_value());
}

TEST_F(TlsHandshakeTest, AChildThatIsForkedKeepsNoHandshakeOpen) {
  TlsPeer peer = make_peer(worker());
  start(Role::kSender);
  run_ready();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  handshake_->close();
  EXPECT_TRUE(pump_until(peer, [&] { return peer.hung_up(); }));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace bascule
