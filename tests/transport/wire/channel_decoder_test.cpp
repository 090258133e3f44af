// Long messages: they are decoded on another thread, while the channel's own thread goes on.
#include <bascule/transport/wire/channel.h>

#include <boost/asio/post.hpp>

#include <future>
#include <string>

#include "channel_fixture.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class ChannelDecoderTest : public ChannelTest {
 protected:
  ChannelDecoderTest() { channel_->decode_by(decoder_); }
  ~ChannelDecoderTest() override { go_on(); }

  // The decoder's thread waits inside a first message, until go_on().
  void hold_up() {
    const std::vector<std::uint8_t> first = encode(Heartbeat{});
    decoder_->decode({first.begin(), first.end()}, first.size(),
                     [held = go_on_.get_future().share()](const absl::StatusOr<Message>&) { held.wait(); });
  }
  void go_on() {
    if (!std::exchange(went_on_, true)) go_on_.set_value();
  }
  // Writes more than the socket takes while the channel reads.
  void write_and_read(const Message& message) { write_and_read(framed(message)); }
  void write_and_read(const std::vector<std::uint8_t>& frame) {
    ASSERT_EQ(::fcntl(theirs_.get(), F_SETFL, O_NONBLOCK), 0);
    std::size_t written = 0;
    ASSERT_TRUE(run_until([&] {
      boost::asio::post(io_, [] {});  // run_until() waits for a handler
      const ssize_t wrote = ::write(theirs_.get(), frame.data() + written, frame.size() - written);
      if (wrote > 0) written += static_cast<std::size_t>(wrote);
      return written == frame.size();
    }));
  }
  void wait_until_decoding() {
    ASSERT_TRUE(run_until([&] {
      boost::asio::post(io_, [] {});
      return channel_->decoding();
    }));
  }

  const std::string long_text_ = std::string(3 * Decoder::kLong, 'x');
  const std::shared_ptr<Decoder> decoder_ = std::make_shared<Decoder>();
  std::shared_ptr<Channel> channel_ = make_channel(std::move(ours_));
  Heard heard_;
  std::promise<void> go_on_;
  bool went_on_ = false;
};

TEST_F(ChannelDecoderTest, TheThreadGoesOnWhileALongMessageIsDecoded) {
  start(*channel_, heard_);
  hold_up();
  write_and_read(Transport{.bytes = long_text_});
  wait_until_decoding();
  write_bytes(framed(Ready{.version = 7}));
  channel_->send(Heartbeat{});
  channel_->read_queued();
  run_ready();
  EXPECT_THAT(heard_.messages, IsEmpty()) << "the short one comes after the long one";
  const Clock::time_point before = Clock::now();
  EXPECT_GE(channel_->last_heard(), before) << "the peer is not silent: its messages are only not read yet";
  std::vector<std::uint8_t> heartbeat(framed(Heartbeat{}).size());
  EXPECT_EQ(::read(theirs_.get(), heartbeat.data(), heartbeat.size()), static_cast<ssize_t>(heartbeat.size()));
  go_on();
  ASSERT_TRUE(run_until([&] { return heard_.messages.size() == 2; }));
  EXPECT_EQ(std::get<Transport>(heard_.messages[0]).bytes, long_text_);
  EXPECT_EQ(std::get<Ready>(heard_.messages[1]).version, 7u);
  EXPECT_THAT(heard_.closed, IsEmpty());
}

TEST_F(ChannelDecoderTest, ALongMessageKeepsItsDescriptors) {
  start(*channel_, heard_);
  const auto peer = make_channel(std::move(theirs_));
  const Pipe pipe = make_pipe();
  Heard theirs;
  start(*peer, theirs);
  peer->send(Transport{.bytes = long_text_}, {pipe.write.get()});
  peer->send(Heartbeat{});
  ASSERT_TRUE(run_until([&] { return heard_.messages.size() == 2; }));
  EXPECT_THAT(heard_.descriptors[0], SizeIs(1));
  EXPECT_THAT(heard_.descriptors[1], IsEmpty());
}

TEST_F(ChannelDecoderTest, WhatCameTogetherWithItsEndWaitsForALongMessage) {
  start(*channel_, heard_);
  hold_up();
  std::vector<std::uint8_t> all = framed(Transport{.bytes = long_text_});
  for (const Version version : {7, 8}) {
    const std::vector<std::uint8_t> frame = framed(Ready{.version = version});
    all.insert(all.end(), frame.begin(), frame.end());
  }
  write_and_read(all);
  wait_until_decoding();
  channel_->read_queued();
  run_ready();
  EXPECT_THAT(heard_.messages, IsEmpty());
  go_on();
  ASSERT_TRUE(run_until([&] { return heard_.messages.size() == 3; }));
  EXPECT_EQ(std::get<Ready>(heard_.messages[1]).version, 7u);
  EXPECT_EQ(std::get<Ready>(heard_.messages[2]).version, 8u);
}

TEST_F(ChannelDecoderTest, AMalformedLongMessageEndsTheConnection) {
  start(*channel_, heard_);
  std::vector<std::uint8_t> frame = framed(Transport{.bytes = long_text_});
  frame[4] = 0xff;
  write_bytes(frame);
  EXPECT_TRUE(absl::IsInvalidArgument(run_until_closed(heard_)));
  EXPECT_THAT(heard_.messages, IsEmpty());
}

TEST_F(ChannelDecoderTest, ALongMessageOfAPeerThatHungUpIsStillDelivered) {
  start(*channel_, heard_);
  hold_up();
  write_and_read(Transport{.bytes = long_text_});
  wait_until_decoding();
  theirs_.reset();
  channel_->send(Heartbeat{});  // finds the peer gone
  run_ready();
  EXPECT_THAT(heard_.closed, IsEmpty());
  go_on();
  EXPECT_TRUE(absl::IsUnavailable(run_until_closed(heard_)));
  EXPECT_THAT(heard_.messages, SizeIs(1));
}

TEST_F(ChannelDecoderTest, AChannelThatClosedMeanwhileDeliversNothing) {
  start(*channel_, heard_);
  hold_up();
  write_and_read(Transport{.bytes = long_text_});
  wait_until_decoding();
  channel_->close();
  channel_.reset();
  std::promise<void> passed;
  decoder_->decode({1}, 1, [&](const absl::StatusOr<Message>&) { passed.set_value(); });  // after the long one
  go_on();
  passed.get_future().wait();
  run_ready();
  EXPECT_THAT(heard_.messages, IsEmpty());
  EXPECT_THAT(heard_.closed, IsEmpty());
}

}  // namespace
}  // namespace bascule
