// A channel with a peer that is broken, hostile or gone.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <random>
#include <string>

#include "channel_fixture.h"
#include "sample_messages.h"
#include "support/descriptors.h"
#include <bascule/transport/status.h>
#include <bascule/transport/wire/channel.h>

namespace bascule {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Bytes = std::vector<std::uint8_t>;

// Sends the bytes with that many copies of `fd` on their first byte.
void send_with_descriptors(int socket, std::span<const std::uint8_t> bytes, int fd, std::size_t count) {
  std::vector<char> control(CMSG_SPACE(sizeof(int) * count));
  iovec piece{.iov_base = const_cast<std::uint8_t*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  const std::vector<int> descriptors(count, fd);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * count);
  ASSERT_EQ(::sendmsg(socket, &message, 0), static_cast<ssize_t>(bytes.size()));
}

Bytes glued(const Bytes& first, const Bytes& second) {
  Bytes all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

using ChannelPeerTest = ChannelTest;

TEST_F(ChannelPeerTest, RefusesALengthBeyondTheLimitBeforeItsBody) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  write_bytes(Bytes{0x01, 0x00, 0x00, 0x04});  // 64 MiB and one byte
  const absl::Status why = run_until_closed(heard);
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(why)), HasSubstr("1 to 67108864 bytes, found one of 67108865"));
  EXPECT_FALSE(channel->open());
}

TEST_F(ChannelPeerTest, RefusesAnEmptyFrame) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  write_bytes(Bytes{0, 0, 0, 0});
  EXPECT_THAT(std::string(message_of(run_until_closed(heard))), HasSubstr("found one of 0"));
}

TEST_F(ChannelPeerTest, RefusesAMessageThatCannotBeRead) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  write_bytes(framed(Heartbeat{}));
  write_bytes(Bytes{1, 0, 0, 0, 0xFF});
  const absl::Status why = run_until_closed(heard);
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(why)), HasSubstr("the peer broke the protocol: malformed CBOR"));
  EXPECT_THAT(heard.messages, SizeIs(1));
}

TEST_F(ChannelPeerTest, GarbageClosesTheChannelOnce) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  std::mt19937 random(7);
  Bytes garbage(10'000);
  for (std::uint8_t& byte : garbage) byte = static_cast<std::uint8_t>(random());
  write_bytes(garbage);
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kInvalidArgument);
  theirs_.reset();
  run_ready();
  EXPECT_THAT(heard.closed, SizeIs(1));
}

TEST_F(ChannelPeerTest, RefusesMoreDescriptorsThanAMessageMayHave) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  Pipe pipe = make_pipe();
  send_with_descriptors(theirs_.get(), framed(Bye{}), pipe.write.get(), kMaxDescriptors + 1);
  pipe.write.reset();
  const absl::Status why = run_until_closed(heard);
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message_of(why)), HasSubstr(cat("more than ", kMaxDescriptors, " descriptors")));
  EXPECT_THAT(heard.messages, IsEmpty());
  EXPECT_TRUE(hung_up(pipe)) << "a descriptor was kept open";
}

TEST_F(ChannelPeerTest, RefusesDescriptorsInTheMiddleOfAMessage) {
  for (const std::size_t place : {std::size_t{2}, std::size_t{4}, std::size_t{6}}) {
    SCOPED_TRACE(place);
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const UniqueFd theirs(ends[1]);
    Heard heard;
    const auto channel = start_channel(UniqueFd(ends[0]), heard);
    const Bytes frame = framed(Bye{});
    ASSERT_EQ(::write(theirs.get(), frame.data(), place), static_cast<ssize_t>(place));
    run_ready();
    Pipe pipe = make_pipe();
    send_with_descriptors(theirs.get(), std::span(frame).subspan(place), pipe.write.get(), 1);
    pipe.write.reset();
    EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(heard.messages, IsEmpty());
    EXPECT_TRUE(hung_up(pipe)) << "a descriptor was kept open";
  }
}

TEST_F(ChannelPeerTest, ClosesTheDescriptorsOfAMessageThatIsRefused) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  Pipe pipe = make_pipe();
  send_with_descriptors(theirs_.get(), Bytes{1, 0, 0, 0, 0xFF}, pipe.write.get(), 1);
  pipe.write.reset();
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(hung_up(pipe));
}

TEST_F(ChannelPeerTest, MessagesBeforeOneThatIsRefusedAreDelivered) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Pipe pipe = make_pipe();
  write_bytes(glued(framed(Heartbeat{}), framed(Decided{.version = 7})));
  send_with_descriptors(theirs_.get(), framed(Bye{}), pipe.write.get(), kMaxDescriptors + 1);
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kInvalidArgument);
  ASSERT_THAT(heard.messages, SizeIs(2));
  EXPECT_EQ(std::get<Decided>(heard.messages[1]).version, 7u);
}

// No end of ours sends this: a sendmsg with descriptors has bytes of one frame only (docs/design/protocol.md).
TEST_F(ChannelPeerTest, DescriptorsOfTwoFramesInOneSendmsgGoToTheSecond) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Pipe pipe = make_pipe();
  send_with_descriptors(theirs_.get(), glued(framed(Heartbeat{}), framed(Bye{})), pipe.write.get(), 1);
  write_bytes(framed(Heartbeat{}));
  ASSERT_TRUE(run_until([&] { return heard.messages.size() == 3; }));
  EXPECT_THAT(heard.descriptors[0], IsEmpty());
  EXPECT_THAT(heard.descriptors[1], SizeIs(1));
  EXPECT_THAT(heard.descriptors[2], IsEmpty());
}

// Frames of many lengths, cut and glued at random, some with descriptors, read whenever some have come.
TEST_F(ChannelPeerTest, EachMessageHasItsDescriptorsWhereverTheStreamIsCut) {
  const Pipe pipe = make_pipe();
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd theirs(ends[1]);
    Heard heard;
    const auto channel = start_channel(UniqueFd(ends[0]), heard);
    std::vector<std::size_t> lengths, counts;
    for (int frames = 0; frames < 30; ++frames) {
      lengths.push_back(below(4) == 0 ? below(5000) : below(40));
      counts.push_back(below(3) == 0 ? 1 + below(3) : 0);
      const Bytes frame = framed(Transport{.bytes = std::string(lengths.back(), 'x')});
      std::span<const std::uint8_t> left(frame);
      if (counts.back() > 0) {
        const std::size_t first = 1 + below(frame.size());
        send_with_descriptors(theirs.get(), left.first(first), pipe.write.get(), counts.back());
        left = left.subspan(first);
      }
      while (!left.empty()) {
        const std::size_t next = 1 + below(left.size());
        ASSERT_EQ(::write(theirs.get(), left.data(), next), static_cast<ssize_t>(next));
        left = left.subspan(next);
        if (below(4) == 0) run_ready();
      }
      if (below(8) == 0) channel->read_queued();
    }
    ASSERT_TRUE(run_until([&] { return heard.messages.size() == lengths.size() || !heard.closed.empty(); }));
    ASSERT_THAT(heard.closed, IsEmpty());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(std::get<Transport>(heard.messages[i]).bytes.size(), lengths[i]);
      EXPECT_EQ(heard.descriptors[i].size(), counts[i]);
    }
  }
}

// The peer is told what was wrong, and nothing that it sends after that is read.
TEST_F(ChannelPeerTest, MayAnswerWhatItRefuses) {
  for (const Bytes& wrong : {Bytes{0, 0, 0, 0}, Bytes{1, 0, 0, 0, 0xFF}, Bytes{0xFF, 0xFF, 0xFF, 0xFF}}) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Heard heard, theirs;
    std::vector<absl::Status> closed;
    const auto channel = make_channel(UniqueFd(ends[0]));
    channel->start([&](Message message, std::vector<UniqueFd>) { heard.messages.push_back(std::move(message)); },
                   [&](const absl::Status& why) {
                     closed.push_back(why);
                     ASSERT_TRUE(channel->open());
                     channel->send(Refused{.why = std::string(message_of(why)), .final = true});
                     channel->close();
                   });
    const Bytes all = glued(wrong, framed(Bye{}));
    ASSERT_EQ(::write(ends[1], all.data(), all.size()), static_cast<ssize_t>(all.size()));
    const auto peer = start_channel(UniqueFd(ends[1]), theirs);
    EXPECT_EQ(run_until_closed(theirs).code(), StatusCode::kUnavailable);
    ASSERT_THAT(theirs.messages, SizeIs(1));
    EXPECT_THAT(std::get<Refused>(theirs.messages.front()).why, HasSubstr("broke the protocol"));
    EXPECT_THAT(heard.messages, IsEmpty());
    EXPECT_THAT(closed, SizeIs(1));
  }
}

TEST_F(ChannelPeerTest, NamesTheLimitIfThereIsNoDescriptorForWhatCame) {
  BASCULE_USES_ALL_DESCRIPTORS();
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Pipe pipe = make_pipe();
  write_bytes(framed(Heartbeat{}));
  send_with_descriptors(theirs_.get(), framed(Bye{}), pipe.write.get(), 2);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = ::dup(0);
  ::close(next_free);
  const rlimit one{.rlim_cur = static_cast<rlim_t>(next_free) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
  const absl::Status why = run_until_closed(heard);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(message_of(why)), HasSubstr(cat("RLIMIT_NOFILE (ulimit -n) of pid ", ::getpid())));
  EXPECT_THAT(heard.messages, SizeIs(1)) << "the one before it";
}

TEST_F(ChannelPeerTest, GivesUpAPeerThatNeverReads) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Transport message{.bytes = std::string(10'000'000, 'x')};
  int sent = 0;
  for (; channel->open() && sent < 100; ++sent) channel->send(message);
  EXPECT_EQ(sent, 14);  // 13 wait, the 14th would be over 128 MiB
  EXPECT_THAT(heard.closed, IsEmpty()) << "on_closed came from inside send()";
  const absl::Status why = run_until_closed(heard);
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(message_of(why)), HasSubstr("the peer does not read"));
}

TEST_F(ChannelPeerTest, RefusesToSendMoreThanAFrameHolds) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  channel->send(Transport{.bytes = std::string(kMaxFrameBytes, 'x')});
  EXPECT_THAT(std::string(message_of(run_until_closed(heard))), HasSubstr("a transport of 671088"));
}

TEST_F(ChannelPeerTest, SaysWhenThePeerHangsUp) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  write_bytes(framed(Bye{}));
  theirs_.reset();
  EXPECT_EQ(run_until_closed(heard), absl::UnavailableError("the peer hung up"));
  EXPECT_THAT(heard.messages, SizeIs(1));
}

TEST_F(ChannelPeerTest, SaysWhenThePeerHangsUpWithinAMessage) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  const Bytes frame = framed(Bye{});
  write_bytes(std::span(frame).first(7));
  theirs_.reset();
  EXPECT_EQ(run_until_closed(heard),
            absl::UnavailableError("the peer hung up in the middle of a message, after 7 bytes of it"));
  EXPECT_THAT(heard.messages, IsEmpty());
}

TEST_F(ChannelPeerTest, WhatThePeerSaidBeforeItHungUpIsHeardThoughWritingFails) {
  Heard heard;
  const auto channel = make_channel(std::move(ours_));
  write_bytes(framed(Refused{.why = "another layout"}));
  theirs_.reset();
  channel->send(Heartbeat{});  // EPIPE
  start(*channel, heard);
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kUnavailable);
  ASSERT_THAT(heard.messages, SizeIs(1));
  EXPECT_EQ(std::get<Refused>(heard.messages[0]).why, "another layout");
}

TEST_F(ChannelPeerTest, APeerThatShutsItsEarsIsGivenUp) {
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  ASSERT_EQ(::shutdown(theirs_.get(), SHUT_RD), 0);
  channel->send(Heartbeat{});
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kUnavailable);
}

TEST_F(ChannelPeerTest, NoticesAProcessThatIsKilled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ours_.reset();
    for (;;) ::pause();
  }
  theirs_.reset();
  Heard heard;
  const auto channel = start_channel(std::move(ours_), heard);
  run_ready();
  EXPECT_THAT(heard.closed, IsEmpty());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(run_until_closed(heard).code(), StatusCode::kUnavailable);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace bascule
