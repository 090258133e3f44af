// A refusal reaches a peer whose messages are no longer read.
#include "channel_tls_fixture.h"  // first: see there

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/linger.h>

namespace bascule {
namespace {

using test::TlsPeer;
using testing::SizeIs;

class LingerTest : public ChannelTlsTest {
 protected:
  // Both ends of a connection over TCP. The peer's end takes little at a time: the rest waits in our end's kernel.
  void connect_over_tcp() {
    const int small = 4096, large = 1 << 20;
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener.get(), name, size), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), name, &size), 0);
    theirs_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::setsockopt(theirs_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    ASSERT_EQ(::connect(theirs_.get(), name, size), 0);
    ours_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_EQ(::setsockopt(ours_.get(), SOL_SOCKET, SO_SNDBUF, &large, sizeof(large)), 0);
  }
  // Reads until the peer has hung up; returns 0 or the error.
  int read_to_the_end(int socket, std::vector<std::uint8_t>& heard) {
    std::vector<std::uint8_t> bytes(1 << 16);
    int error = EAGAIN;
    EXPECT_TRUE(run_until_idle([&] {
      const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count > 0) heard.insert(heard.end(), bytes.begin(), bytes.begin() + count);
      if (count <= 0) error = count == 0 ? 0 : errno;
      return error != EAGAIN;
    }));
    return error;
  }
  template <typename Done>
  bool run_until_idle(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done() && std::chrono::steady_clock::now() < end) run_ready();
    return std::chrono::steady_clock::now() < end;
  }
};

// Without lingering, the kernel dropped unsent bytes and reset the peer's connection.
TEST_F(LingerTest, OverTlsARefusalArrivesThoughThePeersWordsAreUnread) {
  connect_over_tcp();
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const Refused last{.why = long_text(4000)};
  peer.say(Transport{.bytes = long_text(20'000)});
  while (peer.unsent()) peer.pump();
  channel->send(last);
  channel->close();
  ASSERT_TRUE(pump_until(peer, [&] { return peer.hung_up(); }));
  EXPECT_TRUE(peer.ended()) << peer.error();
  EXPECT_TRUE(peer.refusal() == last.why) << peer.heard().size() << " bytes came";
}

// The same if the peer keeps sending for a while.
TEST_F(LingerTest, OverTlsARefusalArrivesThoughThePeerSpeaksOn) {
  connect_over_tcp();
  TlsPeer peer = make_peer(worker());
  Heard heard;
  const auto channel = meet(peer, heard);
  const Refused last{.why = long_text(4000)};
  channel->send(last);
  channel->close();
  ASSERT_TRUE(pump_until(peer, [&] {
    if (!peer.hung_up() && !peer.unsent()) peer.say(Heartbeat{});
    return peer.hung_up();
  }));
  EXPECT_TRUE(peer.ended()) << peer.error();
  EXPECT_TRUE(peer.refusal() == last.why) << peer.heard().size() << " bytes came";
}

TEST_F(LingerTest, OnAUnixSocketThePeerReadsToTheEnd) {
  write_bytes(framed(Heartbeat{}));  // unread
  const auto channel = make_channel(std::move(ours_));
  const Refused last{.why = long_text(4000)};
  channel->send(last);
  channel->close();
  std::vector<std::uint8_t> heard;
  EXPECT_EQ(read_to_the_end(theirs_.get(), heard), 0) << "it was reset";
  EXPECT_TRUE(heard == framed(last)) << heard.size() << " bytes came";
  write_bytes(framed(Heartbeat{}));  // sent before it knew
}

TEST_F(LingerTest, EndsWithThePeer) {
  const int socket = ours_.get();
  const auto channel = make_channel(std::move(ours_));
  channel->close();
  run_ready();
  EXPECT_EQ(::fcntl(socket, F_GETFD), FD_CLOEXEC) << "closed before the peer has read";
  theirs_.reset();
  run_ready();
  EXPECT_EQ(::fcntl(socket, F_GETFD), -1);
  io_.restart();
  EXPECT_EQ(io_.poll(), 0u) << "a timer is left";
  EXPECT_TRUE(io_.stopped());
}

TEST_F(LingerTest, DoesNotWaitLongForAPeerThatStandsStill) {
  const int socket = ours_.get();
  make_channel(std::move(ours_))->close();
  EXPECT_TRUE(run_until([&] { return ::fcntl(socket, F_GETFD) == -1; }));
}

TEST_F(LingerTest, ManyAtOnceTakeNoMoreDescriptorsThanTheyMay) {
  std::vector<UniqueFd> peers;
  int open = 0;
  for (int i = 0; i < kMostLingering + 10; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peers.emplace_back(ends[1]);
    make_channel(UniqueFd(ends[0]))->close();
    open += ::fcntl(ends[0], F_GETFD) != -1 ? 1 : 0;
  }
  EXPECT_EQ(open, kMostLingering);
  peers.clear();
  run_ready();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd peer(ends[1]);
  make_channel(UniqueFd(ends[0]))->close();
  EXPECT_NE(::fcntl(ends[0], F_GETFD), -1) << "those that have ended still count";
}

// Messages to it are discarded, and their descriptors closed.
TEST_F(LingerTest, KeepsNothingOfWhatComes) {
  Heard heard;
  Pipe pipe = make_pipe();
  const auto other = start_channel(std::move(theirs_), heard);
  other->send(Bye{}, {pipe.write.get()});
  pipe.write.reset();
  make_channel(std::move(ours_))->close();
  EXPECT_FALSE(hung_up(pipe));
  run_ready();
  EXPECT_TRUE(hung_up(pipe));
  EXPECT_THAT(heard.closed, SizeIs(1));
}

TEST_F(LingerTest, EndsWithItsThread) {
  auto io = std::make_unique<boost::asio::io_context>();
  const boost::asio::generic::stream_protocol protocol(AF_UNIX, 0);
  const int socket = ours_.get();
  std::make_shared<Channel>(Channel::Socket(*io, protocol, ours_.release()))->close();
  io.reset();
  EXPECT_EQ(::fcntl(socket, F_GETFD), -1);
}

}  // namespace
}  // namespace bascule
