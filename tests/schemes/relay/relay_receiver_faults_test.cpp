// A worker's end with lying engines, lost connections and failing devices.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "schemes/relay/relay_receiver_fixture.h"
#include "support/descriptors.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class RelayReceiverFaults : public RelayReceiverFixture {
 protected:
  // Copies from an engine that shows `page` and one buffer of `allocated` bytes.
  static void introduce_liar(const Engine& reader, SourceId id, const ProgressPage& page, std::uint64_t allocated) {
    std::vector<ProcessFd> descriptors;
    descriptors.emplace_back(UniqueFd(::dup(page.descriptor())));
    descriptors.push_back(std::move(make_memfd("buffer", kBytes)->descriptor));
    introduce(reader, id, {.place = "host", .allocated = allocated}, descriptors);
  }
  // The rest comes from the trainer.
  void expect_cannot(const Engine& engine, Version version, SourceId source, const char* why,
                     std::future<absl::Status> received) {
    const RelayMessage cannot = engine.line->next(Kind::kCannot).message;
    EXPECT_EQ(cannot.number, version);
    EXPECT_EQ(cannot.source, source);
    EXPECT_THAT(cannot.why, HasSubstr(why));
    rest();
    EXPECT_TRUE(engine.line->silent()) << "it asks once";
    go_on(engine, version, kTrainer);
    EXPECT_THAT(received.get(), IsOk());
    expect_whole(engine, version);
  }
};

// ---- engines that cannot be read ----

TEST_F(RelayReceiverFaults, AnEngineThatWasNotIntroducedCannotBeRead) {
  const Engine engine = make(1);
  expect_cannot(engine, 1, 77, "not introduced", receive(engine, 1, 77));
}

TEST_F(RelayReceiverFaults, AnEngineThatHasTheVersionNoMoreCannotBeRead) {
  const Engine a = make(1), b = make(2);
  serve(a, 1);
  introduce(b, a);
  fill(2);
  expect_cannot(b, 2, 1, "no longer", receive(b, 2, 1, /*whole=*/true));
}

TEST_F(RelayReceiverFaults, MemoryThatCannotBeMappedCannotBeRead) {
  const Engine a = make(1), b = make(2);
  RelayMessage message = a.shown.message;
  message.allocated = 1ULL << 60;
  introduce(b, 1, message, a.shown.descriptors);
  expect_cannot(b, 1, 1, "engine 1", receive(b, 1, 1));
  introduce(b, 3, a.shown.message, {});
  fill(2);
  expect_cannot(b, 2, 3, "found 0", receive(b, 2, 3));
}

TEST_F(RelayReceiverFaults, APageThatNamesACopyThatIsNotThereIsNotBelieved) {
  const Engine engine = make(1);
  ProgressPage page = *ProgressPage::make();
  page.begin(5, 1);
  page.advance(5, kBytes);
  introduce_liar(engine, 9, page, kBytes);
  expect_cannot(engine, 1, 9, "buffer 5", receive(engine, 1, 9));
}

TEST_F(RelayReceiverFaults, ACopyThatIsTooSmallIsNotRead) {
  const Engine engine = make(1);
  ProgressPage page = *ProgressPage::make();
  page.begin(0, 1);
  page.advance(0, kBytes);
  introduce_liar(engine, 9, page, kBytes - 1);
  expect_cannot(engine, 1, 9, "too small", receive(engine, 1, 9));
}

TEST_F(RelayReceiverFaults, OfMoreBytesThanThereAreItTakesThoseThatThereAre) {
  const Engine engine = make(1);
  ProgressPage page = *ProgressPage::make();
  page.begin(0, 1);
  page.advance(0, ~0ULL);
  introduce_liar(engine, 9, page, kBytes);
  EXPECT_THAT(receive(engine, 1, 9).get(), IsOk());
  EXPECT_EQ(engine.line->next(Kind::kGot).message.number, 1u);
  const auto view = engine.receiver->prepare(publication(1), Deadline(test::patience()));
  ASSERT_THAT(view, IsOk());
  kernels::ThreadPool pool(1);
  EXPECT_NE(view->digest, kernels::digest(bytes(), pool)) << "other bytes than the trainer's have another digest";
}

TEST_F(RelayReceiverFaults, APageThatGoesBackIsWaitedFor) {
  const Engine engine = make(1);
  ProgressPage page = *ProgressPage::make();
  page.begin(0, 1);
  page.advance(0, 2 * kPiece);
  introduce_liar(engine, 9, page, kBytes);
  auto received = receive(engine, 1, 9);
  wait_for(engine, 1, 2);
  page.advance(0, kPiece);
  rest();
  EXPECT_EQ(engine.here(1), 2 * kPiece);
  page.advance(0, kBytes);
  EXPECT_THAT(received.get(), IsOk());
}

TEST_F(RelayReceiverFaults, ASlotThatWasNotOfferedIsRefused) {
  const Engine engine = make(1);
  engine.receiver->remove({1, 0});
  EXPECT_THAT(receive(engine, 1).get(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not offered")));
  engine.line->next(Kind::kLeft);
}

// ---- connections ----

TEST_F(RelayReceiverFaults, ALostConnectionEndsWhatComesAndItComesBack) {
  Engine engine = make(1);
  fill(1, 2);
  auto received = receive(engine, 1);
  wait_for(engine, 1, 2);
  engine.receiver->close();
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("lost")));
  EXPECT_TRUE(engine.line->silent());
  engine.open_again();
  EXPECT_EQ(engine.shown.descriptors.size(), 3u);
  EXPECT_FALSE(engine.progress->find(1));
  serve(engine, 2);
}

TEST_F(RelayReceiverFaults, WhatBelongedToALostConnectionEndsThoughTheNextIsThere) {
  Engine engine = make(1);
  fill(1, 2);
  auto received = receive(engine, 1);
  wait_for(engine, 1, 2);
  engine.receiver->close();
  engine.open_again();
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("lost")));
}

TEST_F(RelayReceiverFaults, MessagesOfALostConnectionAreForgotten) {
  Engine engine = make(1);
  const Engine other = make(2);
  introduce(engine, other);
  engine.tell({.kind = Kind::kOver, .number = 1});
  engine.line->next(Kind::kLeft);
  engine.receiver->close();
  engine.open_again();
  expect_cannot(engine, 1, 2, "not introduced", receive(engine, 1, 2));
}

TEST_F(RelayReceiverFaults, SurvivesMessagesOfNobody) {
  const Engine engine = make(1);
  engine.receiver->heard("no message", {});
  for (int kind = 0; kind <= static_cast<int>(Kind::kForget); ++kind)
    if (static_cast<Kind>(kind) != Kind::kOver) engine.tell({.kind = static_cast<Kind>(kind), .number = 9});
  for (std::uint64_t number = 100; number < 1000; ++number) {
    engine.tell({.kind = Kind::kOver, .number = number});
    engine.line->next(Kind::kLeft);
  }
  EXPECT_THAT(engine.receiver->receive(publication(1), "no message", Deadline(test::patience())),
              StatusIs(StatusCode::kInvalidArgument, testing::_));
  EXPECT_THAT(engine.receiver->receive(publication(1), to_bytes({.kind = Kind::kFrom}), Deadline(test::patience())),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("another message")));
  serve(engine, 1);
}

TEST_F(RelayReceiverFaults, DescriptorsOfEnginesThatGoAreClosed) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const Engine a = make(1), b = make(2);
  serve(a, 1);
  const auto before = open_files();
  for (SourceId id = 10; id < 40; ++id) {
    introduce(b, id, a.shown.message, a.shown.descriptors);
    b.tell({.kind = Kind::kForget, .source = id});
  }
  introduce(b, a);
  EXPECT_THAT(receive(b, 1, 1).get(), IsOk());  // after all of them
  EXPECT_EQ(open_files(), before + 1) << "the page of an engine that it knows";
}

// Unmapping waits for a device; the I/O thread must not.
// Without one of them, others would take a buffer for another one.
TEST_F(RelayReceiverFaults, WithoutDescriptorsForAllBuffersNoneIsShown) {
  BASCULE_USES_ALL_DESCRIPTORS();
  const Engine engine = make(1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> next;  // the lowest numbers that are free
  for (int i = 0; i < 3; ++i) next.emplace_back(::dup(0));
  rlimit two = before;
  two.rlim_cur = static_cast<rlim_t>(next[2].get());
  next.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &two), 0);
  engine.receiver->open(engine.line);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(engine.line->next(Kind::kBuffers).descriptors, testing::IsEmpty());
}

TEST_F(RelayReceiverFaults, MemoryOfEnginesIsLetGoOnAThreadOfDevices) {
  std::atomic<int> here{0}, elsewhere{0};
  RelayMemory memory = test::host_relay_memory();
  memory.import = [&, import = memory.import, home = std::this_thread::get_id()](
                      int descriptor, std::string_view place,
                      std::uint64_t allocated) -> absl::StatusOr<ReachedMemory> {
    BASCULE_ASSIGN(ReachedMemory memory, import(descriptor, place, allocated));
    memory.owner = std::shared_ptr<const void>(memory.owner.get(), [&, home, owner = memory.owner](const void*) {
      ++(std::this_thread::get_id() == home ? here : elsewhere);
    });
    return memory;
  };
  const Engine a = make(1);
  serve(a, 1);
  {
    const Engine b = make(2, memory);
    for (const bool forgotten : {true, false}) {
      introduce(b, a);
      EXPECT_THAT(receive(b, 1, 1).get(), IsOk());
      expect_whole(b, 1);
      elsewhere = 0;
      if (forgotten) {
        b.tell({.kind = Kind::kForget, .source = 1});
      } else {
        b.receiver->close();
      }
      const Deadline deadline(test::patience());
      while (elsewhere < 2 && !deadline.passed()) std::this_thread::yield();
      EXPECT_EQ(elsewhere, 2);
    }
    EXPECT_EQ(here, 0);
  }
}

// ---- devices that fail ----

TEST_F(RelayReceiverFaults, ACopyThatFailsFailsTheVersion) {
  std::atomic<int> left{2};
  const Engine engine = make(1, test::host_relay_memory({.before_copy = [&] {
                               return --left < 0 ? absl::InternalError("the device is lost") : absl::OkStatus();
                             }}));
  EXPECT_THAT(receive(engine, 1).get(), StatusIs(StatusCode::kInternal, HasSubstr("the device is lost")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
  EXPECT_FALSE(engine.progress->find(1));
  left = 1000;
  serve(engine, 2);
}

TEST_F(RelayReceiverFaults, WithoutADigestAVersionThatWasGotIsLeft) {
  std::atomic<bool> fails{true};
  const Engine engine = make(1, test::host_relay_memory({.before_finish = [&] {
                               return fails ? absl::DeadlineExceededError("the device hangs") : absl::OkStatus();
                             }}));
  EXPECT_THAT(receive(engine, 1).get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("hangs")));
  EXPECT_EQ(engine.line->next(Kind::kGot).message.number, 1u);
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u) << "its readers would wait for ever";
  EXPECT_FALSE(engine.progress->find(1));
  fails = false;
  serve(engine, 2);
}

TEST_F(RelayReceiverFaults, MemoryThatADeviceMayStillWriteStaysAsLongAsTheDeviceIsUsed) {
  const auto buffers = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> fails{true};
  RelayMemory memory = test::host_relay_memory(
      {.before_copy = [&] { return fails ? absl::InternalError("no more") : absl::OkStatus(); },
       .before_settle = [&] { return fails ? absl::DeadlineExceededError("it hangs") : absl::OkStatus(); }});
  memory.make_buffer = [buffers, make_buffer = memory.make_buffer](std::uint64_t bytes) -> absl::StatusOr<ShownMemory> {
    BASCULE_ASSIGN(ShownMemory made, make_buffer(bytes));
    ++*buffers;
    made.memory =
        std::shared_ptr<std::byte>(made.memory.get(), [buffers, memory = made.memory](std::byte*) { --*buffers; });
    return made;
  };
  {
    const Engine engine = make(1, memory);
    EXPECT_FALSE(receive(engine, 1).get().ok());
    engine.line->next(Kind::kLeft);
    EXPECT_EQ(*buffers, 2);
    fails = false;
    fill(2);
    serve(engine, 3);
    EXPECT_EQ(*buffers, 2) << "the other one is there still";
  }
  EXPECT_EQ(*buffers, 0);
}

}  // namespace
}  // namespace bascule::inline v0::relay
