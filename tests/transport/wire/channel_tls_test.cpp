// Messages over a TLS channel.
#include "channel_tls_fixture.h"  // first: see there

#include <openssl/ssl.h>

#include "sample_messages.h"

namespace bascule {
namespace {

using test::IsOk;
using test::kTlsToken;
using test::TlsPeer;
using testing::IsEmpty;

TEST_F(ChannelTlsTest, CarriesEveryMessageBothWaysInEitherRole) {
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    SCOPED_TRACE(role == Role::kSender);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
    TlsPeer peer = make_peer(role == Role::kSender ? worker() : sender());
    Heard heard;
    const auto channel = meet(peer, heard, role);
    const std::vector<Message> messages = sample_messages();
    for (const Message& message : messages) {
      channel->send(message);
      peer.say(message);
    }
    ASSERT_TRUE(pump_until(
        peer, [&] { return heard.messages.size() == messages.size() && peer.messages().size() == messages.size(); }));
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(encode(heard.messages[i]), encode(messages[i]));
      EXPECT_EQ(encode(peer.messages()[i]), encode(messages[i]));
    }
    EXPECT_EQ(peer.version(), TLS1_3_VERSION);
    EXPECT_EQ(peer.cipher(), "TLS_AES_128_GCM_SHA256");
    EXPECT_EQ(peer.group(), "X25519") << "what is recorded stays closed, should the token leak";
    EXPECT_EQ(peer.tickets(), 0u);
    EXPECT_THAT(heard.closed, IsEmpty());
  }
}

TEST_F(ChannelTlsTest, APeerThatReadsAndWritesByteByByteIsUnderstood) {
  TlsPeer::Options slow = worker();
  slow.at_most = 1;
  TlsPeer peer = make_peer(slow);
  Heard heard;
  const auto channel = meet(peer, heard);
  channel->send(sample_hello());
  peer.say(sample_hello());
  ASSERT_TRUE(pump_until(peer, [&] { return heard.messages.size() == 1 && peer.messages().size() == 1; }));
  EXPECT_EQ(encode(heard.messages[0]), encode(sample_hello()));
  EXPECT_EQ(encode(peer.messages()[0]), encode(sample_hello()));
}

// A worker's Finished and its hello in one segment, and never a byte more.
TEST_F(ChannelTlsTest, WhatCameBehindTheHandshakeIsHeard) {
  TlsPeer peer = make_peer(worker());
  peer.say(sample_hello());
  start(Role::kSender);
  ASSERT_THAT(result_with(peer), IsOk());
  ASSERT_TRUE(pump_until(peer, [&] { return !peer.unsent(); }));
  Heard heard;
  ChannelTest::start(***result_, heard);
  ASSERT_TRUE(run_until([&] { return heard.messages.size() == 1; }));
}

// One record may hold more frames than are read at a time, and the socket does not signal the rest.
TEST_F(ChannelTlsTest, FramesThatOpenSslHoldsAreAllRead) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  std::vector<std::uint8_t> glued;
  for (Version version = 0; version < 3000; ++version) {
    const std::vector<std::uint8_t> frame = framed(Decided{.version = version});
    glued.insert(glued.end(), frame.begin(), frame.end());
  }
  peer.say(glued);
  while (peer.unsent()) peer.pump();  // everything is in the socket
  ASSERT_TRUE(run_until([&] { return heard.messages.size() == 3000; }));
  for (Version version = 0; version < 3000; ++version)
    EXPECT_EQ(std::get<Decided>(heard.messages[version]).version, version);
}

TEST_F(ChannelTlsTest, LargeMessagesBothWaysAtOnce) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const std::string text = long_text(8'000'000);
  for (int i = 0; i < 2; ++i) {
    channel->send(Transport{.bytes = text});
    channel->send(Heartbeat{});
    peer.say(Transport{.bytes = text});
    peer.say(Heartbeat{});
  }
  std::size_t expected = 0;
  for (const Message& message : {Message(Transport{.bytes = text}), Message(Heartbeat{})})
    expected += 2 * framed(message).size();
  ASSERT_TRUE(pump_until(peer, [&] { return heard.messages.size() == 4 && peer.heard().size() == expected; }));
  EXPECT_TRUE(std::get<Transport>(heard.messages[2]).bytes == text);
  EXPECT_TRUE(std::get<Transport>(peer.messages()[2]).bytes == text);
}

TEST_F(ChannelTlsTest, TwoChannelsCarryTwentyMegabytes) {
  start(Role::kSender);
  const boost::asio::generic::stream_protocol protocol(AF_UNIX, 0);
  const TlsContext context = *TlsContext::make(Role::kReceiver, Token(kTlsToken), "fake");
  const auto other =
      std::make_shared<TlsHandshake>(Channel::Socket(io_, protocol, theirs_.release()), *context.session());
  std::optional<absl::StatusOr<std::shared_ptr<Channel>>> theirs;
  other->start([&](absl::StatusOr<std::shared_ptr<Channel>> channel) { theirs = std::move(channel); });
  ASSERT_TRUE(run_until([&] { return result_ && theirs; }));
  ASSERT_THAT(theirs->status(), IsOk());
  Heard a, b;
  ChannelTest::start(***result_, a);
  ChannelTest::start(***theirs, b);
  const std::string text = long_text(20'000'000);
  (**result_)->send(Transport{.bytes = text});
  (**theirs)->send(Transport{.bytes = text});
  ASSERT_TRUE(run_until([&] { return a.messages.size() == 1 && b.messages.size() == 1; }));
  EXPECT_TRUE(std::get<Transport>(a.messages[0]).bytes == text);
  EXPECT_TRUE(std::get<Transport>(b.messages[0]).bytes == text);
}

// One of these counts leaves encrypted bytes of the last message, and no message in the queue.
TEST_F(ChannelTlsTest, TheLastRecordGoesOutWhereverTheSocketIsFull) {
  for (std::size_t count = 1; count <= 24; ++count) {
    SCOPED_TRACE(count);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const int small = 1;  // the kernel uses its minimum
    ASSERT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    ours_.reset(ends[0]);
    TlsPeer peer(UniqueFd(ends[1]), worker());
    Heard heard;
    result_.reset();
    const auto channel = meet(peer, heard);
    const Refused message{.why = long_text(500)};
    for (std::size_t i = 0; i < count; ++i) channel->send(message);
    ASSERT_TRUE(pump_until(peer, [&] { return peer.heard().size() == count * framed(message).size(); }));
  }
}

TEST_F(ChannelTlsTest, APeerThatAsksForTheNextKeyGetsIt) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  peer.ask_for_next_key();
  peer.say(Heartbeat{});
  ASSERT_TRUE(pump_until(peer, [&] { return heard.messages.size() == 1; }));
  channel->send(Bye{});
  ASSERT_TRUE(pump_until(peer, [&] { return peer.messages().size() == 1; }));
  EXPECT_EQ(peer.key_updates(), 1u);
  peer.say(Bye{});
  ASSERT_TRUE(pump_until(peer, [&] { return heard.messages.size() == 2; }));
}

TEST_F(ChannelTlsTest, AKeyIsNotUsedForEver) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  for (int i = 0; i < 280'000; ++i) {
    channel->send(Heartbeat{});
    if (i % 1000 == 0) peer.pump();
  }
  const std::size_t expected = 280'000 * framed(Heartbeat{}).size();
  ASSERT_TRUE(pump_until(peer, [&] { return peer.heard().size() == expected || !peer.error().empty(); }));
  EXPECT_EQ(peer.error(), "");
  EXPECT_EQ(peer.key_updates(), 1u);
}

}  // namespace
}  // namespace bascule
