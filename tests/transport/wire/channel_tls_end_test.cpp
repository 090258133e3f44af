// The end of a channel over TLS, closed by either side.
#include "channel_tls_fixture.h"  // first: see there

#include "sample_messages.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::StatusIs;
using test::TlsPeer;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using ChannelTlsEndTest = ChannelTlsTest;

TEST_F(ChannelTlsEndTest, ClosingWritesOutAndSaysThatAllIsSaid) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const Transport last{.bytes = long_text(60'000)};  // four records
  channel->send(last);
  channel->close();
  channel->send(Heartbeat{});
  ASSERT_TRUE(pump_until(peer, [&] { return peer.hung_up(); }));
  EXPECT_TRUE(pump_until(peer, [&] { return peer.ended(); })) << peer.error();
  EXPECT_EQ(peer.heard(), framed(last));
  EXPECT_THAT(heard.closed, IsEmpty());
}

// More than the socket takes: the peer notices that the end is missing.
TEST_F(ChannelTlsEndTest, ClosingBehindMoreThanTheSocketTakesIsNoEnd) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const Transport last{.bytes = long_text(20'000'000)};
  channel->send(last);
  channel->close();
  ASSERT_TRUE(pump_until(peer, [&] { return peer.hung_up(); }));
  for (int i = 0; i < 100; ++i) peer.pump();
  EXPECT_FALSE(peer.ended());
  EXPECT_THAT(peer.messages(), IsEmpty());
  const std::vector<std::uint8_t> whole = framed(last);
  ASSERT_LT(peer.heard().size(), whole.size());
  EXPECT_TRUE(std::equal(peer.heard().begin(), peer.heard().end(), whole.begin()));
}

TEST_F(ChannelTlsEndTest, SaysWhenThePeerHangsUpWithAWordOrWithout) {
  for (const bool word : {true, false}) {
    SCOPED_TRACE(word);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    TlsPeer peer(UniqueFd(ends[1]), worker());
    Heard heard;
    result_.reset();
    const auto channel = meet(peer, heard);
    peer.say(Bye{});
    if (word) peer.say_that_all_is_said();
    while (peer.unsent()) peer.pump();
    if (!word) peer.hang_up();
    EXPECT_EQ(run_until_closed(heard), absl::UnavailableError("the peer hung up"));
    EXPECT_THAT(heard.messages, SizeIs(1));
  }
}

TEST_F(ChannelTlsEndTest, SaysWhenThePeerIsCutOffWithinAMessage) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const std::vector<std::uint8_t> frame = framed(Bye{});
  peer.say(std::span(frame).first(7));
  while (peer.unsent()) peer.pump();
  peer.hang_up();
  EXPECT_EQ(run_until_closed(heard),
            absl::UnavailableError("the peer hung up in the middle of a message, after 7 bytes of it"));
}

TEST_F(ChannelTlsEndTest, BytesThatAreNotThePeersCloseIt) {
  UniqueFd between(::fcntl(theirs_.get(), F_DUPFD_CLOEXEC, 0));
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const std::vector<std::uint8_t> forged = {0x17, 0x03, 0x03, 0x00, 0x20};
  ASSERT_EQ(::write(between.get(), forged.data(), forged.size()), 5);
  const std::vector<std::uint8_t> body(0x20, 0x55);
  ASSERT_EQ(::write(between.get(), body.data(), body.size()), 0x20);
  EXPECT_THAT(run_until_closed(heard), StatusIs(StatusCode::kInvalidArgument, HasSubstr("changed on the way")));
  EXPECT_THAT(heard.messages, IsEmpty());
  pump_until(peer, [&] { return !peer.error().empty(); });
  EXPECT_THAT(peer.error(), HasSubstr("bad record mac")) << "and it is told";
}

TEST_F(ChannelTlsEndTest, APeerThatIsGoneRaisesNoSignal) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  peer.hang_up();
  for (int i = 0; i < 10; ++i) channel->send(Heartbeat{});
  EXPECT_THAT(run_until_closed(heard), StatusIs(StatusCode::kUnavailable, HasSubstr("hung up")));
}

TEST_F(ChannelTlsEndTest, WhatThePeerSaidBeforeItHungUpIsHeardThoughWritingFails) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  peer.say(Refused{.why = "another layout"});
  while (peer.unsent()) peer.pump();
  peer.hang_up();
  channel->send(Heartbeat{});  // EPIPE
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kUnavailable);
  ASSERT_THAT(heard.messages, SizeIs(1));
}

TEST_F(ChannelTlsEndTest, GivesUpAPeerThatNeverReads) {
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const Transport message{.bytes = std::string(10'000'000, 'x')};
  int sent = 0;
  for (; channel->open() && sent < 100; ++sent) channel->send(message);
  EXPECT_EQ(sent, 14);
  EXPECT_THAT(run_until_closed(heard), StatusIs(StatusCode::kResourceExhausted, HasSubstr("the peer does not read")));
}

}  // namespace
}  // namespace bascule
