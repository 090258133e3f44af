#include <bascule/transport/wire/channel.h>

#include <string>

#include "channel_fixture.h"
#include "sample_messages.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

TEST_F(ChannelTest, CarriesEveryMessageBothWays) {
  Heard ours, theirs;
  const auto a = start_channel(std::move(ours_), ours);
  const auto b = start_channel(std::move(theirs_), theirs);
  const std::vector<Message> messages = sample_messages();
  for (const Message& message : messages) {
    a->send(message);
    b->send(message);
  }
  ASSERT_TRUE(run_until([&] { return ours.messages.size() + theirs.messages.size() == 2 * messages.size(); }));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(encode(ours.messages[i]), encode(messages[i]));
    EXPECT_EQ(encode(theirs.messages[i]), encode(messages[i]));
    EXPECT_THAT(ours.descriptors[i], IsEmpty());
  }
  EXPECT_THAT(ours.closed, IsEmpty());
}

TEST_F(ChannelTest, DescriptorsArriveWithTheirMessageClosedOnExec) {
  Heard ours, theirs;
  const auto a = start_channel(std::move(ours_), ours);
  const auto b = start_channel(std::move(theirs_), theirs);
  Pipe pipe = make_pipe();
  const std::vector<int> sent(kMaxDescriptors, pipe.write.get());
  a->send(Heartbeat{});
  a->send(Refused{.why = "with descriptors"}, sent);
  a->send(Bye{});
  pipe.write.reset();
  ASSERT_TRUE(run_until([&] { return theirs.messages.size() == 3; }));
  EXPECT_THAT(theirs.descriptors[0], IsEmpty());
  ASSERT_THAT(theirs.descriptors[1], SizeIs(kMaxDescriptors));
  EXPECT_THAT(theirs.descriptors[2], IsEmpty());
  const int received = theirs.descriptors[1].back().get();
  EXPECT_NE(::fcntl(received, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(received, "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(pipe.read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  theirs.descriptors.clear();
  EXPECT_TRUE(hung_up(pipe)) << "somebody kept a copy";
}

TEST_F(ChannelTest, QueuedMessagesKeepTheirOrderAndDescriptors) {
  Heard ours, theirs;
  const auto a = start_channel(std::move(ours_), ours);
  const std::string long_text(3 << 20, 'x');
  a->send(Transport{.bytes = long_text});  // more than the socket takes: later messages are queued
  std::vector<Pipe> pipes;
  for (int i = 0; i < 20; ++i) {
    pipes.push_back(make_pipe());
    const int fd = pipes.back().write.get();
    a->send(Ready{.version = static_cast<Version>(i)}, {fd});
    pipes.back().write.reset();
  }
  const auto b = start_channel(std::move(theirs_), theirs);
  ASSERT_TRUE(run_until([&] { return theirs.messages.size() == 21; }));
  EXPECT_EQ(std::get<Transport>(theirs.messages[0]).bytes, long_text);
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    EXPECT_EQ(std::get<Ready>(theirs.messages[i + 1]).version, i);
    ASSERT_THAT(theirs.descriptors[i + 1], SizeIs(1));
    ASSERT_EQ(::write(theirs.descriptors[i + 1][0].get(), "x", 1), 1);
    char byte = 0;
    EXPECT_EQ(::read(pipes[i].read.get(), &byte, 1), 1);
  }
}

TEST_F(ChannelTest, ReadsFramesThatComeGlued) {
  std::vector<std::uint8_t> glued;
  for (Version version = 0; version < 1000; ++version) {
    const std::vector<std::uint8_t> frame = framed(Decided{.version = version});
    glued.insert(glued.end(), frame.begin(), frame.end());
  }
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  write_bytes(glued);
  ASSERT_TRUE(run_until([&] { return heard.messages.size() == 1000; }));
  for (Version version = 0; version < 1000; ++version)
    EXPECT_EQ(std::get<Decided>(heard.messages[version]).version, version);
}

// With some of these numbers of messages, what it leaves has been read from the socket, which is then empty.
TEST_F(ChannelTest, WhatReadQueuedLeavesIsReadNext) {
  const std::vector<std::uint8_t> frame = framed(Heartbeat{});
  for (std::size_t messages = 2000; messages < 2100; messages += 10) {
    SCOPED_TRACE(messages);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd theirs(ends[1]);
    Heard heard;
    const auto channel = start_channel(UniqueFd(ends[0]), heard);
    run_ready();
    std::vector<std::uint8_t> glued;
    for (std::size_t i = 0; i < messages; ++i) glued.insert(glued.end(), frame.begin(), frame.end());
    ASSERT_EQ(::write(theirs.get(), glued.data(), glued.size()), static_cast<ssize_t>(glued.size()));
    channel->read_queued();
    run_ready();
    EXPECT_EQ(heard.messages.size(), messages);
  }
}

TEST_F(ChannelTest, ReadQueuedAlsoHandlesWhatComesMeanwhile) {
  int heard = 0;
  const auto channel = make_channel(std::move(ours_));
  channel->start(
      [&](Message, std::vector<UniqueFd>) {
        if (++heard <= 3) write_bytes(framed(Heartbeat{}));
      },
      [](const absl::Status& why) { FAIL() << why; });
  write_bytes(framed(Heartbeat{}));
  channel->read_queued();
  EXPECT_EQ(heard, 4);
}

TEST_F(ChannelTest, ReadsAFrameThatComesByteByByte) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  for (const std::uint8_t byte : framed(sample_hello())) {
    EXPECT_THAT(heard.messages, IsEmpty());
    write_bytes({&byte, 1});
    run_ready();
  }
  ASSERT_THAT(heard.messages, SizeIs(1));
  EXPECT_EQ(encode(heard.messages[0]), encode(sample_hello()));
}

TEST_F(ChannelTest, CarriesTwentyMegabytes) {
  Heard ours, theirs;
  const auto a = start_channel(std::move(ours_), ours);
  const auto b = start_channel(std::move(theirs_), theirs);
  std::string text(20'000'000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 26);
  a->send(Transport{.bytes = text});
  a->send(Heartbeat{});
  ASSERT_TRUE(run_until([&] { return theirs.messages.size() == 2; }));
  EXPECT_TRUE(std::get<Transport>(theirs.messages[0]).bytes == text);
}

TEST_F(ChannelTest, AMessageToManyIsOneInAllTheirQueues) {
  auto message = std::make_shared<const EncodedMessage>(Transport{.bytes = std::string(4'000'000, 'x')});
  std::vector<std::unique_ptr<Heard>> heard;
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 3; ++i) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (const int end : ends) channels.push_back(start_channel(UniqueFd(end), *heard.emplace_back(new Heard)));
    channels[channels.size() - 2]->send(message);
  }
  EXPECT_EQ(message.use_count(), 4) << "none of them was taken by its socket at once";
  ASSERT_TRUE(run_until(
      [&] { return std::ranges::count_if(heard, [](const auto& each) { return each->messages.size() == 1; }) == 3; }));
  EXPECT_EQ(message.use_count(), 1);
}

TEST_F(ChannelTest, LastHeardMovesWithEachByte) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Clock::time_point before = channel->last_heard();
  const std::uint8_t byte = 1;
  write_bytes({&byte, 1});
  EXPECT_TRUE(run_until([&] { return channel->last_heard() > before; }));
}

TEST_F(ChannelTest, ClosingWritesOutAndCallsNobody) {
  Heard ours, theirs;
  const auto a = start_channel(std::move(ours_), ours);
  const auto b = start_channel(std::move(theirs_), theirs);
  a->send(Bye{});
  a->close();
  a->send(Heartbeat{});
  EXPECT_FALSE(a->open());
  EXPECT_EQ(run_until_closed(theirs).code(), absl::StatusCode::kUnavailable);
  ASSERT_THAT(theirs.messages, SizeIs(1));
  EXPECT_STREQ(name_of(theirs.messages[0]), "bye");
  run_ready();
  EXPECT_THAT(ours.closed, IsEmpty());
}

TEST_F(ChannelTest, AHandlerMayCloseTheChannelAndLetItGo) {
  std::shared_ptr<Channel> channel = make_channel(std::move(ours_));
  const std::weak_ptr<Channel> watched = channel;
  int calls = 0;
  channel->start(
      [&channel, &calls, big = std::string(100, 'x')](Message, std::vector<UniqueFd>) {
        ++calls;
        channel->close();
        channel.reset();
        EXPECT_EQ(big, std::string(100, 'x')) << "the handler lives while it runs";
      },
      [](const absl::Status& why) { FAIL() << why; });
  write_bytes(framed(Bye{}));
  write_bytes(framed(Bye{}));
  ASSERT_TRUE(run_until([&] { return watched.expired(); }));
  run_ready();
  EXPECT_EQ(calls, 1);
}

TEST_F(ChannelTest, DroppingTheLastReferenceCloses) {
  Heard ours, theirs;
  auto a = start_channel(std::move(ours_), ours);
  const auto b = start_channel(std::move(theirs_), theirs);
  run_ready();
  a.reset();
  EXPECT_EQ(run_until_closed(theirs).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(ours.closed, IsEmpty());
}

}  // namespace
}  // namespace bascule
