// A channel over one end of a real socket pair; the other end is also a channel, or a bare descriptor.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <bascule/transport/wire/channel.h>

namespace bascule {

// Everything that a channel reported to its owner.
struct Heard {
  std::vector<Message> messages;
  std::vector<std::vector<UniqueFd>> descriptors;  // of each message
  std::vector<absl::Status> closed;
};

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
  }

  std::shared_ptr<Channel> make_channel(UniqueFd socket) {
    const boost::asio::generic::stream_protocol protocol(AF_UNIX, 0);
    return std::make_shared<Channel>(Channel::Socket(io_, protocol, socket.release()));
  }
  std::shared_ptr<Channel> start_channel(UniqueFd socket, Heard& heard) {
    std::shared_ptr<Channel> channel = make_channel(std::move(socket));
    start(*channel, heard);
    return channel;
  }
  static void start(Channel& channel, Heard& heard) {
    channel.start(
        [&heard](Message message, std::vector<UniqueFd> descriptors) {
          heard.messages.push_back(std::move(message));
          heard.descriptors.push_back(std::move(descriptors));
        },
        [&heard](absl::Status why) { heard.closed.push_back(std::move(why)); });
  }

  // Runs handlers until `done()`; false after a minute.
  template <typename Done>
  bool run_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    io_.restart();
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.run_one_until(end);
      io_.restart();
    }
    return done();
  }
  // Runs the handlers that are ready now.
  void run_ready() {
    io_.restart();
    while (io_.poll() > 0) io_.restart();
  }
  // Runs until the channel closed, and returns why.
  absl::Status run_until_closed(const Heard& heard) {
    EXPECT_TRUE(run_until([&] { return !heard.closed.empty(); }));
    return heard.closed.empty() ? absl::OkStatus() : heard.closed.front();
  }

  void write_bytes(std::span<const std::uint8_t> bytes) {
    ASSERT_EQ(::write(theirs_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::uint8_t> framed(const Message& message) {
    const std::vector<std::uint8_t> body = encode(message);
    std::vector<std::uint8_t> frame;
    for (std::size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::uint8_t>(body.size() >> (8 * i)));
    frame.insert(frame.end(), body.begin(), body.end());
    return frame;
  }

  boost::asio::io_context io_;
  UniqueFd ours_, theirs_;
};

struct Pipe {
  UniqueFd read, write;
};
inline Pipe make_pipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}
// Whether no process holds the other end (the pipe is empty).
inline bool hung_up(const Pipe& pipe) {
  char byte = 0;
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return ::read(pipe.read.get(), &byte, 1) == 0;
}

}  // namespace bascule
