// A channel over TLS at our end of a real socket, and OpenSSL's own API at the other end.
#pragma once

#include "channel_fixture.h"

#include <memory>
#include <optional>
#include <string>

#include "support/status.h"
#include "support/tls_peer.h"
#include <bascule/transport/wire/tls_handshake.h>

namespace bascule {

class ChannelTlsTest : public ChannelTest {
 protected:
  test::TlsPeer make_peer(const test::TlsPeer::Options& options) { return {std::move(theirs_), options}; }
  static test::TlsPeer::Options worker() { return {.server = false, .token = test::kTlsToken}; }
  static test::TlsPeer::Options sender() { return {.server = true, .token = test::kTlsToken}; }

  // Our end begins to shake hands.
  void start(Role role) {
    const boost::asio::generic::stream_protocol protocol(AF_UNIX, 0);
    const TlsContext context = *TlsContext::make(role, Token(test::kTlsToken), "fake");
    handshake_ = std::make_shared<TlsHandshake>(Channel::Socket(io_, protocol, ours_.release()), *context.session());
    handshake_->start([this](absl::StatusOr<std::shared_ptr<Channel>> channel) { result_ = std::move(channel); });
  }
  // Advances both ends as far as possible.
  template <typename Done>
  bool pump_until(test::TlsPeer& peer, Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done() && std::chrono::steady_clock::now() < end) {
      peer.pump();
      run_ready();
    }
    return done();
  }
  absl::Status result_with(test::TlsPeer& peer) {
    EXPECT_TRUE(pump_until(peer, [&] { return result_.has_value(); }));
    return result_ ? result_->status() : absl::InternalError("no result");
  }
  // Shakes hands, and starts the channel.
  std::shared_ptr<Channel> meet(test::TlsPeer& peer, Heard& heard, Role role = Role::kSender) {
    start(role);
    EXPECT_THAT(result_with(peer), test::IsOk());
    const std::shared_ptr<Channel> channel = **result_;
    result_.reset();
    ChannelTest::start(*channel, heard);
    EXPECT_TRUE(pump_until(peer, [&] { return peer.open(); }));
    return channel;
  }
  static std::string long_text(std::size_t bytes) {
    std::string text(bytes, ' ');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 26);
    return text;
  }

  std::shared_ptr<TlsHandshake> handshake_;
  std::optional<absl::StatusOr<std::shared_ptr<Channel>>> result_;
};

}  // namespace bascule
