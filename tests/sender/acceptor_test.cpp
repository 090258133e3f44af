// Peers of every kind at an acceptor: real sockets, and no coordinator behind it.
#include "sender/acceptor.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/port.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include "transport/text.h"

namespace bascule {
namespace {

using test::IsOk;
using test::patience;
using test::silence;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Token kToken("open sesame");

// A peer of the acceptor: a bare socket, and messages where they are wanted.
class Peer {
 public:
  explicit Peer(const Endpoint& endpoint)
      : socket_(::socket(endpoint.over_tcp() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (endpoint.over_tcp()) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(endpoint.port);
      ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
      connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    } else {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      endpoint.control_socket().native().copy(address.sun_path, sizeof(address.sun_path) - 1);
      connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
    EXPECT_TRUE(connected_);
  }

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

  // What came so far, whole messages; `hung_up` once the other end is gone.
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
  bool connected_ = false;
  std::vector<std::uint8_t> buffer_;
  std::vector<Message> heard_;
};

class AcceptorTest : public testing::Test {
 protected:
  void listen(const std::string& url, std::optional<Token> token = std::nullopt) {
    endpoint_ = Endpoint::parse(url).value();
    acceptor_.emplace(
        io_, endpoint_, std::move(token),
        [this](std::shared_ptr<Channel> channel, const Hello& hello) {
          arrived_.push_back(hello.worker);
          channel->start([](const Message&, const std::vector<UniqueFd>&) {}, [](const absl::Status&) {});
          channels_.push_back(std::move(channel));
        },
        [](Channel& channel) { channel.send(SenderStatus{.scheme = "asked"}); },
        [this](const absl::Status& why) { refused_.emplace_back(message_of(why)); });
    ASSERT_THAT(acceptor_->bind(), IsOk());
    acceptor_->start();
  }
  void listen_in_folder(std::string_view options = "") { listen(cat("shm://", folder_.path().string(), "?", options)); }
  void listen_over_tcp(std::string_view options = "digest=on") {
    listen(cat("fake://127.0.0.1:", port_.number(), "?state=", folder_.path().string(), "&", options), kToken);
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
  static std::string soon() { return cat("heartbeat=1ms&suspect_after=", absl::ToInt64Milliseconds(silence()), "ms"); }
  static Hello hello(std::string worker) {
    Hello hello;
    hello.worker = std::move(worker);
    return hello;
  }
  // The proof for the challenge that `peer` heard, or of another nonce.
  Handshake challenged(Peer& peer, Proof& proof, const Token& token = kToken) {
    run_until([&] { return !peer.heard().empty(); });
    Handshake receiver(Role::kReceiver, token);
    proof = std::get<Proof>(**receiver.on_message(peer.heard().front()));
    return receiver;
  }

  test::TempFolder folder_;
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
  peer.write(Inquire{});
  run_until([&] { return !peer.heard().empty(); });
  EXPECT_EQ(std::get<SenderStatus>(peer.heard().front()).scheme, "asked");
  Peer other(endpoint_);
  other.write(Inquire{.protocol = kProtocol + 1});
  run_until([&] { return other.refusal().find("the question is of protocol 2, expected 1") != std::string::npos; });
  run_until([&] { return peer.heard(), peer.hung_up; });  // it may not stay
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, WhoSaysNothingIsDropped) {
  for (const bool over_tcp : {false, true}) {
    SCOPED_TRACE(over_tcp);
    over_tcp ? listen_over_tcp(soon()) : listen_in_folder(soon());
    Peer peer(endpoint_);
    run_until([&] { return peer.refusal() == cat("did not say who it is within ", absl::FormatDuration(silence())); });
    run_until([&] { return peer.heard(), peer.hung_up; });
  }
}

TEST_F(AcceptorTest, TheEldestMakesRoomWhereManySayNothing) {
  listen_in_folder();
  std::vector<std::unique_ptr<Peer>> silent;
  for (std::size_t i = 0; i < kMaxNewcomers; ++i) {
    silent.push_back(std::make_unique<Peer>(endpoint_));
    if (i == 0) io_.poll();
  }
  Peer peer(endpoint_);
  peer.write(hello("a"));
  run_until([&] { return !arrived_.empty(); });
  EXPECT_EQ(silent.front()->refusal(), "64 connections have not said who they are");
  for (std::size_t i = 1; i < silent.size(); ++i) EXPECT_EQ(silent[i]->refusal(), "") << i;
}

// Linux keeps a connection in the queue that accept() has no descriptor for: to ask again at once would spin.
TEST_F(AcceptorTest, WithoutDescriptorsItPausesAndTriesOn) {
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
  EXPECT_THAT(refused_, ElementsAre(HasSubstr("Too many open files"))) << "said once";
  EXPECT_THAT(arrived_, ElementsAre());
  run_until([&] { return !arrived_.empty(); });
}

TEST_F(AcceptorTest, OverTcpAWorkerProvesItselfFirst) {
  listen_over_tcp();
  Peer peer(endpoint_);
  Proof proof;
  Handshake receiver = challenged(peer, proof);
  peer.write(proof);
  run_until([&] { return peer.heard().size() == 2; });
  EXPECT_THAT(receiver.on_message(peer.heard()[1]), IsOk());
  EXPECT_TRUE(receiver.done());
  Hello large = hello("a");
  large.expected.emplace(1000, TensorSpec{.name = "some tensor", .dtype = DType::kF32, .shape = {1}});
  ASSERT_GT(encode(large).size(), kMaxUnprovenFrameBytes);
  peer.write(large);
  run_until([&] { return !arrived_.empty(); });
  EXPECT_THAT(refused_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpEveryFailureIsAnsweredAlike) {
  listen_over_tcp();
  Peer before(endpoint_);
  Proof overheard;
  challenged(before, overheard);
  const auto forged = [](Proof& proof) { proof.mac[0] = static_cast<char>(proof.mac[0] ^ 1); };

  std::vector<std::function<Message(Peer&)>> attempts = {
      [&](Peer& peer) {
        Proof proof;
        challenged(peer, proof, Token("close sesame"));
        return proof;
      },
      [&](Peer& peer) {
        Proof proof;
        challenged(peer, proof);
        forged(proof);
        return proof;
      },
      [&](Peer&) { return overheard; },
      [&](Peer& peer) {  // what the sender said, as an answer
        run_until([&] { return !peer.heard().empty(); });
        return peer.heard().front();
      },
      [&](Peer&) { return hello("a"); },
      [&](Peer&) { return Proven{.mac = overheard.mac}; },
  };
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    SCOPED_TRACE(i);
    refused_.clear();
    Peer peer(endpoint_);
    peer.write(attempts[i](peer));
    run_until([&] { return peer.refusal() == kNotAuthenticated; });
    run_until([&] { return peer.heard(), peer.hung_up; });
    EXPECT_THAT(refused_, ElementsAre(AllOf(HasSubstr("a connection from 127.0.0.1:"), HasSubstr("authentication"),
                                            Not(HasSubstr("sesame")))));
  }
  EXPECT_THAT(arrived_, ElementsAre());
}

TEST_F(AcceptorTest, OverTcpALongFrameIsRefusedByItsLengthAlone) {
  listen_over_tcp();
  Peer peer(endpoint_);
  peer.write_bytes({0x01, 0x10, 0, 0});  // 4097, and not a byte of it
  run_until([&] { return peer.heard(), peer.hung_up && !refused_.empty(); });
  EXPECT_THAT(refused_, ElementsAre(HasSubstr("expected a message of 1 to 4096 bytes, found one of 4097")));
}

}  // namespace
}  // namespace bascule
