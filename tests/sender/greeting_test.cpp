// Workers with another protocol or digest, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace bascule::test {
namespace {

using testing::HasSubstr;

class Greeting : public Wired {};

TEST_F(Greeting, OfAnotherProtocolIsRefusedByNameForGood) {
  listen();
  const auto worker = connect();
  Hello hello = WireWorker::hello("a", 1);
  hello.protocol = kProtocol + 1;
  worker->say(hello);
  const Refused refused = worker->expect<Refused>();
  EXPECT_THAT(refused.why, HasSubstr(cat("speaks protocol ", kProtocol + 1, ", expected ", kProtocol)));
  EXPECT_TRUE(refused.final);
}

TEST_F(Greeting, WithAnotherDigestIsRefusedByNameForGood) {
  listen();
  const auto worker = connect();
  Hello hello = WireWorker::hello("a", 1);
  hello.digest_number = kDigestNumber - 1;
  worker->say(hello);
  const Refused refused = worker->expect<Refused>();
  EXPECT_THAT(refused.why, HasSubstr(cat("digest function ", kDigestNumber - 1, ", expected ", kDigestNumber)));
  EXPECT_TRUE(refused.final);
}

// A socket that speaks no protocol of itself.
class RawPeer {
 public:
  explicit RawPeer(const std::filesystem::path& folder) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = folder / "control.sock";
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  void write(std::span<const std::uint8_t> bytes) {
    EXPECT_EQ(::write(socket_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // What comes until the sender hangs up.
  std::string read() {
    std::string all(1 << 16, 0);
    std::size_t got = 0;
    for (ssize_t count = 1; count > 0; got += static_cast<std::size_t>(std::max<ssize_t>(count, 0)))
      count = ::read(socket_.get(), all.data() + got, all.size() - got);
    all.resize(got);
    return all;
  }

 private:
  UniqueFd socket_{::socket(AF_UNIX, SOCK_STREAM, 0)};
};

TEST_F(Greeting, WithAFrameThatCannotBeReadIsRefusedWithTheReason) {
  listen();
  for (const std::vector<std::uint8_t>& wrong :
       {std::vector<std::uint8_t>{0, 0, 0, 0}, {1, 0, 0, 0, 0xFF}, {0xFF, 0xFF, 0xFF, 0x7F}}) {
    RawPeer peer(folder_.path());
    peer.write(wrong);
    EXPECT_THAT(peer.read(), testing::AllOf(HasSubstr("refused"), HasSubstr("the peer broke the protocol")));
  }
}

TEST_F(Greeting, OfAMemberThatThenBreaksTheProtocolEndsWithTheReason) {
  listen();
  const auto worker = connect();
  worker->say(WireWorker::hello("a", 1));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  worker->say(Hello{});  // a hello needs a name
  EXPECT_THAT(worker->expect<Refused>().why, HasSubstr("the peer broke the protocol: hello, key \"worker\""));
}

class LoggedGreeting : public Greeting {
 protected:
  void SetUp() override {
    auto made =
        Sender::listen({.endpoint = cat("shm://", folder_.path().string()), .log = [this](std::string_view line) {
                          const std::lock_guard lock(mutex_);
                          lines_.emplace_back(line);
                        }});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(LoggedGreeting, AgainAndAgainFillsNoLog) {
  for (int i = 0; i < 300; ++i) {
    const auto worker = connect();
    Hello hello = WireWorker::hello(i < 299 ? "a" : "b", 1);
    hello.expected =
        std::make_shared<const std::vector<TensorSpec>>(std::vector<TensorSpec>{{"no such", DType::kF32, {1}}});
    worker->say(hello);
    EXPECT_TRUE(worker->expect<Refused>().final);
  }
  const auto is_of_b = [](const std::string& line) { return line.starts_with("gave up b"); };
  const Deadline deadline(patience());  // a line comes after the refusal
  while (std::ranges::none_of(lines(), is_of_b) && !deadline.passed()) std::this_thread::yield();
  const std::vector<std::string> all = lines();
  EXPECT_EQ(std::ranges::count_if(all, [](const auto& line) { return line.find("worker a") != line.npos; }), 3);
  EXPECT_THAT(lines(), testing::Contains(testing::AllOf(HasSubstr("gave up b: worker b"), HasSubstr("no such"))))
      << "the first of another worker";
}

TEST_F(LoggedGreeting, WithNamesThatWouldClearTheTerminalShowsThemEscaped) {
  const auto worker = connect();
  Hello hello = WireWorker::hello("a", 1);
  hello.host = "h\x1b[2J";
  hello.expected =
      std::make_shared<const std::vector<TensorSpec>>(std::vector<TensorSpec>{{"x\x1b[2J\ny", DType::kF32, {1}}});
  worker->say(hello);
  EXPECT_THAT(worker->expect<Refused>().why, HasSubstr("x\\x1b[2J\ny"));
  EXPECT_THAT(lines(), testing::Each(testing::Not(testing::AnyOf(HasSubstr("\x1b"), HasSubstr("\n")))));
  EXPECT_THAT(sender_->wait_for_workers(1, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       testing::AllOf(HasSubstr("x\\x1b[2J"), testing::Not(HasSubstr("\x1b")))));
}

// As closefrom() does, in a process that lives on.
TEST_F(Greeting, OfAWorkerThatClosesItsLeasePipeIsNotSaidToBeOfADeadProcess) {
  listen();
  const auto worker = connect();
  worker->say(WireWorker::hello("a", 1));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  ASSERT_THAT(sender_->send_async(), IsOk());
  worker->expect<Welcome>();
  worker->expect<Prepare>();
  worker->close_descriptors();
  const Refused refused = worker->expect<Refused>();
  EXPECT_THAT(refused.why, testing::AllOf(HasSubstr("its lease pipe was closed"), testing::Not(HasSubstr("gone"))));
  EXPECT_FALSE(refused.final);
  static_cast<void>(sender_->wait_async(patience()));
}

}  // namespace
}  // namespace bascule::test
