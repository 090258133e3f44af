// One end of a control connection on which the test writes every message. It speaks the protocol over the socket, but
// moves no weights.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <gmock/gmock.h>
#include <boost/asio/io_context.hpp>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/timing.h"
#include <bascule/transport/wire/channel.h>

namespace bascule::test {

class WireEnd {
 public:
  void say(const Message& message, const std::vector<int>& descriptors = {}) { channel_->send(message, descriptors); }

  void hang_up() { channel_.reset(); }  // descriptors that it received stay open

  void close_descriptors() { held_.clear(); }
  bool hung_up() const { return closed_; }  // true once next() has seen the connection end

  // Returns the next message; a Bye if none comes within patience(), or if the connection has ended.
  Message next() {
    const Deadline deadline(patience());
    while (heard_.empty() && !closed_ && !deadline.passed()) {
      io_.restart();
      io_.run_one_until(deadline.at());
    }
    if (heard_.empty()) return Bye{};
    Message message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  // Returns the next message if it has come; does not wait.
  std::optional<Message> next_if_any() {
    io_.restart();
    io_.poll();
    if (heard_.empty()) return std::nullopt;
    Message message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  // Returns the next message that is not a heartbeat; the test fails if that is not of type Wanted.
  template <typename Wanted>
  Wanted expect() {
    Message message = next();
    while (std::holds_alternative<Heartbeat>(message)) message = next();
    const auto* refused = std::get_if<Refused>(&message);
    EXPECT_TRUE(std::holds_alternative<Wanted>(message))
        << "found " << name_of(message) << (refused != nullptr ? ": " + refused->why : "");
    return std::holds_alternative<Wanted>(message) ? std::get<Wanted>(message) : Wanted{};
  }

 protected:
  void speak(Channel::Socket socket) {
    closed_ = false;
    heard_.clear();
    channel_ = std::make_shared<Channel>(std::move(socket));
    channel_->start(
        [this](Message message, std::vector<UniqueFd> descriptors) {
          heard_.push_back(std::move(message));
          for (UniqueFd& descriptor : descriptors) held_.push_back(std::move(descriptor));
        },
        [this](const absl::Status&) { closed_ = true; });
  }

  boost::asio::io_context io_;

 private:
  std::shared_ptr<Channel> channel_;
  bool closed_ = false;
  std::deque<Message> heard_;
  std::vector<UniqueFd> held_;  // among them the lease pipe: if it closed, its worker would be taken for dead
};

}  // namespace bascule::test
