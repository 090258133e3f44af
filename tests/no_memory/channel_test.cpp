// Channels while memory runs out: with each kind of message, read or written, only that channel ends.
#include "transport/wire/channel_fixture.h"  // first: see there

#include "no_memory/failing_allocator.h"
#include "support/status.h"
#include "transport/wire/sample_messages.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

class ChannelWithoutMemory : public ChannelTest {
 protected:
  struct Pair {
    Heard ours, theirs;
    std::shared_ptr<Channel> a, b;
  };
  std::unique_ptr<Pair> make_pair(const std::shared_ptr<Decoder>& decoder = nullptr) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    auto pair = std::make_unique<Pair>();
    pair->a = start_channel(UniqueFd(ends[0]), pair->ours);
    pair->b = make_channel(UniqueFd(ends[1]));
    if (decoder) pair->b->decode_by(decoder);
    start(*pair->b, pair->theirs);
    return pair;
  }
  bool carries(Pair& pair) {
    const std::size_t before = pair.theirs.messages.size();
    pair.a->send(Heartbeat{});
    return run_until([&] { return pair.theirs.messages.size() > before; });
  }
};

TEST_F(ChannelWithoutMemory, EndsAloneIfItCannotSend) {
  const auto other = make_pair();
  const Pipe pipe = make_pipe();
  const std::vector<int> descriptors = {pipe.write.get()};
  const std::string long_text(3 << 20, 'x');
  std::vector<Message> messages = sample_messages();
  messages.emplace_back(Transport{.bytes = long_text});  // is queued
  for (const Message& message : messages) {
    for (std::size_t n = 1;; ++n) {
      const auto pair = make_pair();
      test::fail_at(n);
      pair->a->send(message, descriptors);
      pair->a->send(message, descriptors);
      if (!test::stop_failing()) break;
      SCOPED_TRACE(cat(name_of(message), ", allocation ", n));
      EXPECT_TRUE(absl::IsResourceExhausted(run_until_closed(pair->ours)));
      ASSERT_TRUE(run_until([&] { return !pair->theirs.closed.empty(); }));
      ASSERT_TRUE(carries(*other));
    }
  }
  EXPECT_THAT(other->ours.closed, testing::IsEmpty());
}

TEST_F(ChannelWithoutMemory, EndsAloneIfItCannotRead) {
  const auto other = make_pair();
  const Pipe pipe = make_pipe();
  std::size_t failures = 0;
  for (const Message& message : sample_messages()) {
    for (std::size_t n = 1;; ++n) {
      const auto pair = make_pair();
      pair->a->send(message, {pipe.write.get()});
      test::fail_at(n);
      run_ready();
      const bool failed = test::stop_failing();
      if (!failed) break;
      ++failures;
      SCOPED_TRACE(cat(name_of(message), ", allocation ", n));
      // A failure may also be made good, such as one while the end is posted.
      run_ready();
      ASSERT_TRUE(!pair->theirs.closed.empty() || pair->theirs.messages.size() == 1);
      for (const absl::Status& why : pair->theirs.closed) EXPECT_TRUE(absl::IsResourceExhausted(why)) << why;
      ASSERT_TRUE(carries(*other));
    }
  }
  EXPECT_GT(failures, sample_messages().size());
  EXPECT_THAT(other->ours.closed, testing::IsEmpty());
}

// On the decoder's thread.
TEST_F(ChannelWithoutMemory, EndsAloneIfALongMessageCannotBeDecoded) {
  test::spare_thread();
  const auto decoder = std::make_shared<Decoder>();
  const auto other = make_pair(decoder);
  Hello hello;
  hello.worker = "w";
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 4000; ++i) specs.push_back({.name = cat("a rather long name of a tensor ", i), .shape = {4, 4}});
  hello.expected = std::make_shared<const std::vector<TensorSpec>>(std::move(specs));
  bool ended = false, came = false;
  for (std::size_t n = 1; n < 1u << 20; n = n * 5 / 4 + 1) {
    const auto pair = make_pair(decoder);
    test::fail_anywhere_at(n);
    pair->a->send(hello);
    ASSERT_TRUE(run_until([&] { return pair->theirs.closed.size() + pair->theirs.messages.size() > 0; }));
    const bool failed = test::stop_failing_anywhere();
    for (const absl::Status& why : pair->theirs.closed) EXPECT_TRUE(absl::IsResourceExhausted(why)) << why;
    (pair->theirs.closed.empty() ? came : ended) = true;
    ASSERT_TRUE(carries(*other));
    if (!failed) break;
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(came);
}

}  // namespace
}  // namespace bascule
