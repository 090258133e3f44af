// Peers of every kind at an acceptor: real sockets, without a coordinator.
#include <bascule/sender/acceptor.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/descriptors.h"
#include "support/port.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include "support/tls_peer.h"
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::kTlsToken;
using test::patience;
using test::silence;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

UniqueFd tcp_socket(const Endpoint& endpoint) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}
UniqueFd unix_socket(const Endpoint& endpoint) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  endpoint.control_socket().native().copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

// A peer of the acceptor: a bare socket, with messages if needed.
class Peer {
 public:
  explicit Peer(const Endpoint& endpoint)
      : socket_(endpoint.over_tcp() ? tcp_socket(endpoint) : unix_socket(endpoint)) {}

  void write_bytes(const std::vector<std::uint8_t>& bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::uint8_t> framed(const Message& message) {
    const std::vector<std::uint8_t> body = encode(message);
    std::vector<std::uint8_t> frame;
    for (std::size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::uint8_t>(body.size() >> (8 * i)));
    frame.insert(frame.end(), body.begin(), body.end());
    return frame;
  }
  void write(const Message& message) { write_bytes(framed(message)); }

  // The whole messages received so far; sets `hung_up` once the other end is gone.
  const std::vector<Message>& heard() {
    std::uint8_t bytes[4096];
    ssize_t count = 0;
    while ((count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
      buffer_.insert(buffer_.end(), bytes, bytes + count);
    hung_up = hung_up || count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    while (buffer_.size() >= 4) {
      const std::size_t length = buffer_[0] | buffer_[1] << 8 | buffer_[2] << 16;
      if (buffer_.size() < 4 + length) break;
      absl::StatusOr<Message> message = decode(std::span(buffer_).subspan(4, length));
      EXPECT_THAT(message, IsOk());
      if (message.ok()) heard_.push_back(*std::move(message));
      buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(4 + length));
    }
    return heard_;
  }
  std::string refusal() {
    heard();
    const auto* refused = heard_.empty() ? nullptr : std::get_if<Refused>(&heard_.back());
    return refused == nullptr ? "" : refused->why;
  }

  bool hung_up = false;

 private:
  UniqueFd socket_;
  std::vector<std::uint8_t> buffer_;
  std::vector<Message> heard_;
};

class AcceptorTest : public testing::Test {
 protected:
  void listen(const std::string& url, std::optional<Token> token = std::nullopt) {
    endpoint_ = Endpoint::parse(url).value();
    opened_ = open_private_folder(folder_.path()).value();
    acceptor_.emplace(
        io_, endpoint_, opened_.get(), std::move(token), /*epoch=*/7,
        [this](std::shared_ptr<Channel> channel, const Hello& hello) {
          arrived_.push_back(hello.worker);
          channel->start([](const Message&, const std::vector<UniqueFd>&) {}, [](const absl::Status&) {});
          channels_.push_back(std::move(channel));
        },
        [](Channel& channel) { channel.send(SenderStatus{.scheme = "asked"}); }, /*on_rank=*/nullptr,
        [this](const absl::Status& why) { refused_.emplace_back(message_of(why)); });
    ASSERT_THAT(acceptor_->bind(), IsOk());
    acceptor_->start();
  }
  void listen_in_folder(std::string_view options = "") { listen(cat("shm://", folder_.path().string(), "?", options)); }
  void listen_over_tcp(std::string_view options = "digest=on") {
    listen(cat("fake://127.0.0.1:", port_.number(), "?state=", folder_.path().string(), "&", options),
           Token(kTlsToken));
  }

  template <typename Done>
  void run_until(Done done) {
    const auto end = Deadline(patience()).at();
    io_.restart();
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.run_one_for(std::chrono::milliseconds(5));
      io_.restart();
    }
    EXPECT_TRUE(done());
  }
  // Allows both ends of as many connections as there may be.
  static void allow_descriptors() {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 4 * kMaxNewcomers);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0)
        << "raise the hard limit of open files, for example ulimit -Hn 4096";
  }
  static constexpr std::string_view kPatient = "suspect_after=600s";  // a thousand connections take time
  static std::string soon() { return cat("heartbeat=1ms&suspect_after=", absl::ToInt64Milliseconds(silence()), "ms"); }
  static Hello hello(std::string worker) {
    Hello hello;
    hello.worker = std::move(worker);
    return hello;
  }

  test::TempFolder folder_;
  UniqueFd opened_;  // the folder
  test::ReservedPort port_;
  boost::asio::io_context io_;
  Endpoint endpoint_;
  std::optional<Acceptor> acceptor_;
  std::vector<std::string> arrived_, refused_;
  std::vector<std::shared_ptr<Channel>> channels_;
};

TEST_F(AcceptorTest, HandsAWorkerOverWithItsGreeting) {
  listen_in_folder();
  Peer peer(endpoint_);
  peer.write(hello("a"));
  run_until([&] { return !arrived_.empty(); });
  EXPECT_THAT(arrived_, ElementsAre("a"));
  channels_.front()->send(Heartbeat{});
  run_until([&] { return !peer.heard().empty(); });
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(peer.heard().front()));
}

TEST_F(AcceptorTest, WhoGreetsWithSomethingElseIsRefused) {
  listen_in_folder();
  Peer peer(endpoint_);
  peer.write(Ready{.version = 1});
  run_until([&] { return peer.refusal() == "expected hello as the first message, found ready"; });
  EXPECT_THAT(refused_, ElementsAre(HasSubstr("a connection: expected hello")));
}

TEST_F(AcceptorTest, WhoAsksIsAnsweredAndIsNoMember) {
  listen_in_folder(soon());
  Peer peer(endpoint_);
  peer.write(StatusQuery{});
  run_until([&] { return !peer.heard().empty(); });
  EXPECT_EQ(std::get<SenderStatus>(peer.heard().front()).scheme, "asked");
  Peer other(endpoint_);
  other.write(StatusQuery{.protocol = kProtocol + 1});
  run_until([&] {
    return other.refusal().find(cat("the status query uses protocol ", kProtocol + 1, ", expected ", kProtocol)) !=
           std::string::npos;
  });
  run_until([&] { return peer.heard(), peer.hung_up; });  // it may not stay
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, WhoSaysNothingIsDropped) {
  for (const bool over_tcp : {false, true}) {
    SCOPED_TRACE(over_tcp);
    over_tcp ? listen_over_tcp(soon()) : listen_in_folder(soon());
    Peer peer(endpoint_);
    const std::string why = cat("sent no hello within ", absl::FormatDuration(silence()));
    run_until([&] { return peer.heard(), peer.hung_up && !refused_.empty(); });
    EXPECT_EQ(peer.refusal(), over_tcp ? "" : why) << "over TCP a peer is told nothing before it is trusted";
    EXPECT_THAT(refused_, ElementsAre(HasSubstr(why)));
    refused_.clear();
  }
}

TEST_F(AcceptorTest, TheEldestMakesRoomWhereManySayNothing) {
  allow_descriptors();
  listen_in_folder(kPatient);
  std::vector<std::unique_ptr<Peer>> silent;
  for (std::size_t i = 0; i < kMaxNewcomers; ++i) {
    silent.push_back(std::make_unique<Peer>(endpoint_));
    if (i == 0) io_.poll();
  }
  Peer peer(endpoint_);
  peer.write(hello("a"));
  run_until([&] { return !arrived_.empty(); });
  EXPECT_EQ(silent.front()->refusal(), cat(kMaxNewcomers, " connections have sent no hello"));
  for (std::size_t i = 1; i < silent.size(); ++i) EXPECT_EQ(silent[i]->refusal(), "") << i;
}

// A whole fleet connects before the first hello is read: the hellos are read before any of them makes room.
TEST_F(AcceptorTest, NobodyThatGreetedMakesRoom) {
  allow_descriptors();
  listen_in_folder(kPatient);
  std::vector<std::unique_ptr<Peer>> fleet;
  for (std::size_t i = 0; i < kMaxNewcomers + 100; ++i) {
    fleet.push_back(std::make_unique<Peer>(endpoint_));
    fleet.back()->write(hello(cat("w", i)));
  }
  run_until([&] { return arrived_.size() + refused_.size() == fleet.size(); });
  EXPECT_EQ(arrived_.size(), fleet.size());
  EXPECT_THAT(refused_, ElementsAre());
}

// Linux keeps a connection in the queue if accept() has no descriptor for it: retrying at once would spin.
TEST_F(AcceptorTest, WithoutDescriptorsItPausesAndTriesOn) {
  BASCULE_USES_ALL_DESCRIPTORS();
  listen_in_folder();
  Peer peer(endpoint_);
  peer.write(hello("a"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = ::dup(0);
  ::close(next_free);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::size_t handlers = io_.run_for(std::chrono::milliseconds(250));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(handlers, 50u);
  EXPECT_THAT(refused_,
              ElementsAre(AllOf(HasSubstr("Too many open files"),
                                HasSubstr(cat("RLIMIT_NOFILE (ulimit -n) of pid ", ::getpid(), " is ", next_free)))))
      << "logged once, with the limit";
  EXPECT_THAT(arrived_, ElementsAre());
  run_until([&] { return !arrived_.empty(); });
}

TEST_F(AcceptorTest, OverTcpPeersThatSayNothingHaveAQuarterOfTheDescriptors) {
  listen_over_tcp(kPatient);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 400, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::unique_ptr<Peer>> silent;
  for (int i = 0; i < 110; ++i) silent.push_back(std::make_unique<Peer>(endpoint_));
  run_until([&] { return refused_.size() == 10; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(refused_, Each(HasSubstr("100 connections have sent no hello")));
}

TEST_F(AcceptorTest, OverTcpAWorkerProvesItselfFirst) {
  listen_over_tcp();
  test::TlsPeer peer(tcp_socket(endpoint_), {.token = kTlsToken});
  Hello large = hello("a");
  large.expected = std::make_shared<const std::vector<TensorSpec>>(
      10'000, TensorSpec{.name = "some tensor", .dtype = DType::kF32, .shape = {1}});
  peer.say(large);
  run_until([&] { return peer.pump(), !arrived_.empty(); });
  EXPECT_THAT(arrived_, ElementsAre("a"));
  channels_.front()->send(Heartbeat{});
  run_until([&] { return peer.pump(), !peer.messages().empty(); });
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(peer.messages().front()));
  EXPECT_THAT(refused_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpWhoeverDoesNotKnowTheTokenIsRefusedUnheard) {
  listen_over_tcp();
  const std::vector<test::TlsPeerOptions> strangers = {
      {.token = "correct horse and so on"},
      {.token = kTlsToken, .scheme = "other"},  // a worker of another endpoint, direct or through a relay
      {.believes_anybody = true},
      {.certificate = true, .believes_anybody = true},
  };
  for (std::size_t i = 0; i < strangers.size(); ++i) {
    SCOPED_TRACE(i);
    refused_.clear();
    test::TlsPeer peer(tcp_socket(endpoint_), strangers[i]);
    peer.say(hello("a"));
    run_until([&] { return peer.pump(), peer.hung_up() && !refused_.empty(); });
    EXPECT_FALSE(peer.open());
    EXPECT_THAT(peer.error(), HasSubstr("alert")) << "TLS tells it";
    EXPECT_THAT(refused_, ElementsAre(AllOf(HasSubstr("a connection from 127.0.0.1:"),
                                            HasSubstr("does not know this token"), Not(HasSubstr("horse")))));
    if (i == 1) {
      EXPECT_THAT(refused_.front(), AllOf(HasSubstr("scheme other"), HasSubstr("scheme fake")));
    }
  }
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpWhatIsNoTlsIsNotParsed) {
  listen_over_tcp();
  for (const std::vector<std::uint8_t>& bytes :
       {Peer::framed(hello("a")), Peer::framed(StatusQuery{}),
        std::vector<std::uint8_t>{0x16, 0x03, 0x01, 0xFF, 0xFF, 1}, std::vector<std::uint8_t>(100'000, 'x'),
        std::vector<std::uint8_t>{'G', 'E', 'T', ' ', '/', '\r', '\n'}}) {
    SCOPED_TRACE(bytes.size());
    refused_.clear();
    Peer peer(endpoint_);
    peer.write_bytes(bytes);
    run_until([&] { return !refused_.empty(); });
    EXPECT_THAT(refused_, ElementsAre(HasSubstr("authentication failed")));
  }
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpWhoStopsHalfWayIsDropped) {
  listen_over_tcp(soon());
  test::TlsPeer half(tcp_socket(endpoint_), {.token = kTlsToken, .at_most = 40});  // of its first message
  half.pump();
  EXPECT_TRUE(half.unsent());
  test::TlsPeer nameless(tcp_socket(endpoint_), {.token = kTlsToken});  // proves itself, then stays silent
  const std::string why = cat("sent no hello within ", absl::FormatDuration(silence()));
  run_until([&] { return nameless.pump(), nameless.hung_up() && refused_.size() == 2; });
  EXPECT_THAT(refused_, Each(HasSubstr(why)));
  EXPECT_EQ(nameless.refusal(), why);
  half.at_most(1 << 20);
  run_until([&] { return half.pump(), half.hung_up(); });
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpTheEldestMakesRoomWhereManySayNothing) {
  allow_descriptors();
  listen_over_tcp(kPatient);
  std::vector<std::unique_ptr<Peer>> silent;
  for (std::size_t i = 0; i < kMaxNewcomers; ++i) {
    silent.push_back(std::make_unique<Peer>(endpoint_));
    if (i % 16 == 0) io_.restart(), io_.poll();
  }
  test::TlsPeer peer(tcp_socket(endpoint_), {.token = kTlsToken});
  peer.say(hello("a"));
  run_until([&] { return peer.pump(), !arrived_.empty(); });
  silent.front()->heard();
  EXPECT_TRUE(silent.front()->hung_up);
  for (std::size_t i = 1; i < silent.size(); ++i) {
    silent[i]->heard();
    EXPECT_FALSE(silent[i]->hung_up) << i;
  }
}

}  // namespace
}  // namespace bascule
