// The newest version on its way to one worker that came late, seen from the wire: the test is the worker.
#include <unistd.h>

#include <utility>  // Boost 1.74 needs it first

#include <gmock/gmock.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <array>
#include <deque>
#include <memory>

#include "sender/sender.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "transport/channel.h"

namespace bascule {
namespace {

using test::IsOk;

class Worker {
 public:
  explicit Worker(const std::filesystem::path& folder) {
    boost::asio::local::stream_protocol::socket socket(io_);
    socket.connect(boost::asio::local::stream_protocol::endpoint((folder / "control.sock").string()));
    channel_ = std::make_shared<Channel>(Channel::Socket(std::move(socket)));
    channel_->start(
        [this](Message message, std::vector<UniqueFd> descriptors) {
          heard_.push_back(std::move(message));
          for (UniqueFd& descriptor : descriptors) held_.push_back(std::move(descriptor));
        },
        [this](const absl::Status& why) {
          ADD_FAILURE() << why;
          closed_ = true;
        });
  }

  void say(const Message& message) { channel_->send(message); }

  // The next message; a bye where nothing comes for long, or ever.
  Message next() {
    const Deadline deadline(absl::Minutes(1));
    while (heard_.empty() && !closed_ && !deadline.passed()) {
      io_.restart();
      io_.run_one_until(deadline.at());
    }
    if (heard_.empty()) return Bye{};
    Message message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  template <typename Wanted>
  Wanted expect() {
    Message message = next();
    while (std::holds_alternative<Heartbeat>(message)) message = next();
    EXPECT_TRUE(std::holds_alternative<Wanted>(message)) << "found " << name_of(message);
    return std::holds_alternative<Wanted>(message) ? std::get<Wanted>(message) : Wanted{};
  }

 private:
  boost::asio::io_context io_;
  std::shared_ptr<Channel> channel_;
  bool closed_ = false;
  std::deque<Message> heard_;
  std::vector<UniqueFd> held_;  // the lease pipe among them: without it the worker would be taken for dead
};

TEST(CatchUp, IsTriedAgainOnceTheSlotWasReleased) {
  const test::TempFolder folder;
  const std::array<float, 4> weight{1, 2, 3, 4};
  auto sender = Sender::listen({.endpoint = "shm://" + folder.path().string() + "?heartbeat=20ms&suspect_after=60s"});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(std::make_unique<HostTensors>(
                  std::vector<std::pair<TensorSpec, const void*>>{{{"w", DType::kF32, {4}}, weight.data()}})),
              IsOk());
  ASSERT_THAT(sender->send(), IsOk());

  Worker worker(folder.path());
  Hello hello;
  hello.worker = "late";
  hello.instance = 5;
  hello.pid = ::getpid();
  worker.say(hello);
  worker.expect<Welcome>();
  const Prepare first = worker.expect<Prepare>();
  EXPECT_EQ(first.version, 1);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Failed{.version = 1, .why = "this once"});
  EXPECT_EQ(worker.expect<Abort>().version, 1);

  // The release answers the abort, and ends the lease. A second try before it would be left without one.
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(worker.next()));
  worker.say(Released{.slot = first.slot, .version = 1});
  const Prepare second = worker.expect<Prepare>();
  EXPECT_EQ(second.version, 1);
  EXPECT_EQ(second.slot, first.slot);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Prepared{.version = 1});
  EXPECT_EQ(worker.expect<Commit>().version, 1);
}

}  // namespace
}  // namespace bascule
