// A worker whose every message is the test's: it speaks the protocol over the sender's socket, and reads no weights.
#pragma once

#include <unistd.h>

#include <utility>  // Boost 1.74 needs it first

#include <gmock/gmock.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"

namespace bascule::test {

class WireWorker {
 public:
  explicit WireWorker(const std::filesystem::path& folder) {
    boost::asio::local::stream_protocol::socket socket(io_);
    socket.connect(boost::asio::local::stream_protocol::endpoint((folder / "control.sock").string()));
    channel_ = std::make_shared<Channel>(Channel::Socket(std::move(socket)));
    channel_->start(
        [this](Message message, std::vector<UniqueFd> descriptors) {
          heard_.push_back(std::move(message));
          for (UniqueFd& descriptor : descriptors) held_.push_back(std::move(descriptor));
        },
        [this](const absl::Status&) { closed_ = true; });
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
  // Joins a sender that has published, and serves its newest version. Nothing that it says is true but the words.
  void serve(std::string name, std::uint64_t instance) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    hello.pid = ::getpid();
    say(hello);
    expect<Welcome>();
    const Version version = expect<Prepare>().version;
    say(Ready{.version = version});
    expect<Sealed>();
    say(Prepared{.version = version});
    expect<Commit>();
    say(Ack{.version = version});
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

}  // namespace bascule::test
