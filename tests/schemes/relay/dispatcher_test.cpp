// The sender's end: it passes on the buffers that workers show, and gives up workers that break the protocol.
#include <bascule/schemes/relay/dispatcher.h>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "schemes/relay/relay_receiver_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Workers final : public WorkerLine {
 public:
  struct Said {
    WorkerId worker = 0;
    RelayMessage message{};
    std::vector<ProcessFd> descriptors{};
  };
  void deliver(WorkerId worker, Version, std::string bytes) override { say(worker, std::move(bytes), {}); }
  void say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors) override {
    said.push_back({.worker = worker, .message = *parse_message(bytes), .descriptors = std::move(descriptors)});
  }
  void give_up(WorkerId worker, absl::Status why) override { given_up[worker] = std::move(why); }
  void log(std::string line) override { lines.push_back(std::move(line)); }
  void post(std::function<void()> work) override { work(); }

  std::vector<Said> said;
  std::map<WorkerId, absl::Status> given_up;
  std::vector<std::string> lines;
};

class RelayDispatcher : public testing::Test {
 protected:
  using Kind = RelayMessage::Kind;

  RelayDispatcher() { dispatcher.open(line); }

  static std::vector<UniqueFd> some(std::size_t count) {
    std::vector<UniqueFd> descriptors;
    for (std::size_t i = 0; i < count; ++i)
      descriptors.emplace_back(::dup(make_memfd("shown", 4096)->descriptor.get()));
    return descriptors;
  }
  static ino_t file_of(int descriptor) {
    struct stat found {};
    EXPECT_EQ(::fstat(descriptor, &found), 0);
    return found.st_ino;
  }
  static std::ptrdiff_t open_files() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  }
  void join(WorkerId worker, std::vector<UniqueFd> descriptors) {
    dispatcher.joined(worker);
    dispatcher.heard(
        worker, to_bytes({.kind = Kind::kBuffers, .place = "GPU of " + std::to_string(worker), .allocated = 1 << 20}),
        std::move(descriptors));
  }
  void join(std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) join(worker, some(3));
  }
  void deliver(std::uint64_t number, std::vector<WorkerId> workers) {
    DeliveryOrder order;
    order.number = order.publication.version = number;
    order.workers = std::move(workers);
    dispatcher.deliver(std::move(order), [this, number](const absl::Status& status) {
      EXPECT_THAT(status, IsOk());
      done.push_back(number);
    });
  }
  void hear(WorkerId worker, Kind kind, std::uint64_t number) {
    dispatcher.heard(worker, to_bytes({.kind = kind, .number = number}), {});
  }

  Workers line;
  Dispatcher dispatcher{RelayShape::kChain, DigestMode::kOn};
  std::vector<std::uint64_t> done;
};

TEST_F(RelayDispatcher, BeginsWhileTheSlotIsWritten) { EXPECT_TRUE(dispatcher.starts_while_written()); }

TEST_F(RelayDispatcher, AWorkerIsToldWhatItsSourceShows) {
  std::vector<UniqueFd> shown = some(3);
  std::vector<ino_t> files;
  for (const UniqueFd& each : shown) files.push_back(file_of(each.get()));
  join(1, std::move(shown));
  join({2});
  deliver(7, {1, 2});
  ASSERT_THAT(line.said, SizeIs(3));
  EXPECT_EQ(line.said[0].worker, 1u);
  EXPECT_EQ(line.said[1].worker, 2u);
  const RelayMessage& engine = line.said[1].message;
  EXPECT_EQ(engine.kind, Kind::kEngine);
  EXPECT_EQ(engine.source, 1u);
  EXPECT_EQ(engine.place, "GPU of 1");
  EXPECT_EQ(engine.allocated, 1u << 20);
  std::vector<ino_t> told;
  for (const ProcessFd& each : line.said[1].descriptors) told.push_back(file_of(each.get()));
  EXPECT_EQ(told, files) << "its page, then its buffers";
  EXPECT_EQ(line.said[2].message.kind, Kind::kTake);
  EXPECT_EQ(line.said[2].message.source, 1u);
}

TEST_F(RelayDispatcher, ADeliveryIsDoneOnceAllHaveIt) {
  join({1, 2});
  deliver(1, {1, 2});
  hear(1, Kind::kGot, 1);
  EXPECT_THAT(done, IsEmpty());
  hear(2, Kind::kGot, 1);
  EXPECT_THAT(done, ElementsAre(1));
  deliver(2, {});
  EXPECT_THAT(done, ElementsAre(1, 2)) << "also from within the call";
}

TEST_F(RelayDispatcher, AStoppedDeliveryIsDoneOnceAllHaveLeft) {
  join({1});
  deliver(1, {1});
  dispatcher.stop(1);
  EXPECT_EQ(line.said.back().message.kind, Kind::kOver);
  EXPECT_THAT(done, IsEmpty());
  hear(1, Kind::kLeft, 1);
  EXPECT_THAT(done, ElementsAre(1));
}

TEST_F(RelayDispatcher, AWorkerThatShowsNoCopyOrTooManyIsGivenUp) {
  WorkerId worker = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kMostBuffers + 2}) {
    join(++worker, some(count));
    EXPECT_THAT(line.given_up[worker], StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("descriptors")));
  }
  join(++worker, some(kMostBuffers + 1));
  EXPECT_FALSE(line.given_up.contains(worker));
}

TEST_F(RelayDispatcher, AWorkerWhoseBuffersHaveNoBytesIsGivenUp) {
  dispatcher.joined(1);
  dispatcher.heard(1, to_bytes({.kind = Kind::kBuffers, .place = "a GPU", .allocated = 0}), some(2));
  EXPECT_THAT(line.given_up[1], StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no bytes")));
}

TEST_F(RelayDispatcher, AWorkerThatSaysNoMessageOrASendersIsGivenUp) {
  join({1, 2});
  dispatcher.heard(1, "no message", {});
  EXPECT_THAT(line.given_up[1], StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a message")));
  hear(2, Kind::kTake, 1);
  EXPECT_THAT(line.given_up[2], StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("protocol")));
}

TEST_F(RelayDispatcher, WhatAWorkerShowedIsClosedWhenItGoes) {
  const auto before = open_files();
  join({1, 2});
  join({1});  // it sends it again
  deliver(1, {1, 2});
  line.said.clear();
  dispatcher.removed(1);
  EXPECT_EQ(open_files(), before + 3);
  dispatcher.removed(2);
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(done, ElementsAre(1));
}

// A descriptor would keep the memory of a buffer that its worker gives up.
TEST_F(RelayDispatcher, WhatAWorkerIsToldToHideIsClosed) {
  const auto show = [this](WorkerId worker) {
    dispatcher.joined(worker);
    dispatcher.heard(worker, to_bytes({.kind = Kind::kBuffers, .place = "a GPU", .allocated = 1 << 20}), some(3));
  };
  show(1);
  const auto before = open_files();
  show(2);
  EXPECT_EQ(line.said.front().message.kind, Kind::kHide);
  EXPECT_EQ(open_files(), before);
}

TEST_F(RelayDispatcher, WhatAStrangerShowsIsNotKept) {
  const auto before = open_files();
  dispatcher.heard(99, to_bytes({.kind = Kind::kBuffers, .place = "a GPU", .allocated = 1 << 20}), some(3));
  EXPECT_EQ(open_files(), before);
}

TEST_F(RelayDispatcher, OnceClosedItCallsNobody) {
  join({1, 2});
  deliver(1, {1, 2});
  line.said.clear();
  dispatcher.close();
  hear(1, Kind::kGot, 1);
  hear(2, Kind::kGot, 1);
  dispatcher.stop(1);
  dispatcher.removed(1);
  dispatcher.removed(2);
  EXPECT_THAT(line.said, IsEmpty());
  EXPECT_THAT(done, IsEmpty());
}

}  // namespace
}  // namespace bascule::inline v0::relay
