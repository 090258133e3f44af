// Groups: ranks that flip together. Rank 0 decides at its token boundary; the test passes its decision to the others,
// as an engine's step message does.
#include "conformance/suite.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class Group {
 public:
  explicit Group(std::vector<std::unique_ptr<Worker>> ranks) : ranks_(std::move(ranks)) {}
  Worker& rank(std::size_t index) { return *ranks_[index]; }
  // One step of the engine: rank 0 commits, and the others follow it.
  Version step() {
    const Version version = rank(0).step().version;
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      const Observed followed = rank(i).copy_behind(version);
      EXPECT_EQ(followed.version, version) << "rank " << i;
      EXPECT_EQ(followed.wrong, "") << "rank " << i;
    }
    return version;
  }
  void step_until(Version version) {
    for (const Deadline deadline(patience()); !deadline.passed() && !testing::Test::HasFailure();)
      if (step() >= version) return;
    ADD_FAILURE() << "the group did not reach version " << version;
  }
  // Steps until the pending send has settled, and returns its report.
  absl::StatusOr<SendReport> step_until_settled(Sender& sender) {
    for (const Deadline deadline(patience()); !deadline.passed() && !testing::Test::HasFailure();) {
      step();
      absl::StatusOr<SendReport> report = sender.wait_async(absl::Milliseconds(1));
      if (!absl::IsDeadlineExceeded(report.status())) return report;
    }
    return sender.wait_async(absl::ZeroDuration());
  }
  void greet() {
    for (const auto& rank : ranks_) EXPECT_NE(rank->wait_ready(absl::ZeroDuration()), "");
  }
  void drop(std::size_t index) { ranks_[index] = nullptr; }
  void replace(std::size_t index, std::unique_ptr<Worker> rank) { ranks_[index] = std::move(rank); }

 private:
  std::vector<std::unique_ptr<Worker>> ranks_;
};

Group start_group(Stage& stage, std::string name, std::uint32_t ranks, std::string_view options = "",
                  std::optional<Apply> copies = {}) {
  std::vector<std::unique_ptr<Worker>> made;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    made.push_back(stage.start_rank(name, rank, ranks, options, copies));
  Group group(std::move(made));
  group.greet();
  return group;
}

absl::StatusOr<SendReport> send_to(Stage& stage, Group& group, std::vector<std::string> names = {}) {
  stage.model_.step(++stage.generation_);
  EXPECT_THAT(stage.sender_->send_async(nullptr, names), IsOk());
  return group.step_until_settled(*stage.sender_);
}

TEST_P(Conformance, AGroupWhoseRanksCopyFlipsTogether) {
  for (const Apply apply : {Apply::kCommit, Apply::kBackground}) {
    SCOPED_TRACE(apply == Apply::kCommit ? "commit" : "background");
    listen();
    Group tp = start_group(*this, "tp", 3, "", apply);
    wait_for_workers(3);
    for (int run = 0; run < 2; ++run) {
      for (int i = 0; i < 5; ++i) {
        const absl::StatusOr<SendReport> report = send_to(*this, tp);
        ASSERT_THAT(report, IsOk());
        EXPECT_TRUE(report->complete());
        EXPECT_EQ(tp.rank(2).report().generation, generation_);
      }
      sender_.reset();
      EXPECT_GT(tp.step(), 0u) << "they continue to serve";
      listen();
      wait_for_workers(3);
    }
    sender_.reset();
  }
}

TEST_P(Conformance, AGroupFlipsTogetherOnRank0sWord) {
  listen();
  Group tp = start_group(*this, "tp", 3);
  wait_for_workers(3);
  for (Version version = 1; version <= 5; ++version) {
    const absl::StatusOr<SendReport> report = send_to(*this, tp);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->version, version);
    EXPECT_EQ(report->workers.size(), 3u);
    EXPECT_TRUE(report->complete());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(tp.rank(rank).report().version, version);
      EXPECT_EQ(tp.rank(rank).report().generation, generation_);
    }
  }
}

TEST_P(Conformance, AFollowerNeverFlipsByItself) {
  listen();
  Group tp = start_group(*this, "tp", 2);
  wait_for_workers(2);
  ASSERT_THAT(send_to(*this, tp), IsOk());
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(tp.rank(1).step().version, 1u);
  EXPECT_EQ(tp.rank(0).report().version, 1u);
  ASSERT_THAT(tp.step_until_settled(*sender_), IsOk());
  EXPECT_EQ(tp.rank(1).report().version, 2u);
}

TEST_P(Conformance, AGroupIsAdmittedWhenAllItsRanksHaveGreeted) {
  listen();
  auto first = start_rank("tp", 0, 2);
  EXPECT_NE(first->wait_ready(absl::ZeroDuration()), "");
  EXPECT_THAT(sender_->wait_for_workers(1, absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("expected 1 workers")));
  std::vector<std::unique_ptr<Worker>> ranks;
  ranks.push_back(std::move(first));
  ranks.push_back(start_rank("tp", 1, 2));
  Group tp(std::move(ranks));
  tp.greet();
  wait_for_workers(2);
  ASSERT_THAT(send_to(*this, tp), IsOk());
}

TEST_P(Conformance, AGroupsNameMeansAllItsRanksAndARankAloneIsRefused) {
  listen();
  Group tp = start_group(*this, "tp", 2);
  const auto single = join("single");
  wait_for_workers(3);
  ASSERT_THAT(send_to(*this, tp), IsOk());
  const absl::StatusOr<SendReport> report = send_to(*this, tp, {"tp"});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->workers.size(), 2u);
  EXPECT_EQ(single->report().version, 1u);
  EXPECT_THAT(
      sender_->send(nullptr, {"tp-1"}),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("rank 1 of group tp"), HasSubstr("name the group"))));
  EXPECT_THAT(sender_->send(nullptr, {"tq"}), StatusIs(StatusCode::kNotFound, HasSubstr("known are: single, tp")));
}

TEST_P(Conformance, AGroupIsEvictedWholeAndComesBackWhole) {
  listen();
  Group tp = start_group(*this, "tp", 2);
  const auto single = join("single");
  wait_for_workers(3);
  ASSERT_THAT(send_to(*this, tp), IsOk());
  tp.drop(1);
  const Observed alone = tp.rank(0).wait_until([](const Observed& now) { return !now.attached; }, "being alone");
  EXPECT_EQ(alone.version, 1u);
  EXPECT_THAT(alone.error, HasSubstr("lost rank 1"));
  EXPECT_EQ(send_complete(1).workers[0].worker, "single");
  tp.replace(1, start_rank("tp", 1, 2));
  tp.rank(1).wait_ready(absl::ZeroDuration());  // makes it greet; if the scheme keeps files, it may be ready at once
  // The group catches up together, without the trainer. The new rank has no older version to follow.
  for (const Deadline deadline(patience()); tp.rank(0).step().version < 2 && !deadline.passed();) continue;
  tp.step_until(2);
  wait_for_workers(3);
  EXPECT_EQ(tp.rank(0).report().generation, generation_);
  EXPECT_EQ(tp.rank(1).report().generation, generation_);
  ASSERT_THAT(send_to(*this, tp), IsOk());
}

TEST_P(Conformance, AFollowerThatCannotFollowPoisonsItsGroup) {
  const std::string options = cat("suspect_after=", absl::ToInt64Milliseconds(patience()),
                                  "ms&flip_timeout=", absl::ToInt64Milliseconds(4 * silence()),
                                  "ms&timeout=", absl::ToInt64Milliseconds(patience()), "ms");
  listen(options);
  Group tp = start_group(*this, "tp", 2, options);
  wait_for_workers(2);
  ASSERT_THAT(send_to(*this, tp), IsOk());
  // As if rank 0 had flipped to a version that does not exist.
  const Observed lost = tp.rank(1).copy_behind(99);
  EXPECT_TRUE(lost.poisoned);
  EXPECT_EQ(lost.version, 1u);
  tp.rank(1).wait_until([](const Observed& now) { return now.state == "poisoned"; }, "being poisoned");
  tp.rank(0).wait_until_warned(AllOf(HasSubstr("lost rank 1"), HasSubstr("poisoned")));
  // With a new version, both serve again.
  wait_for_workers(2);
  const absl::StatusOr<SendReport> report = send_to(*this, tp);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
  EXPECT_EQ(tp.rank(1).report().state, "serving");
  EXPECT_FALSE(tp.rank(1).report().poisoned);
}

// Rank 0 flipped, then the trainer died: the follower flips because rank 0 did, without a message from the trainer.
TEST_P(Conformance, AFollowerFlipsOnRank0sWordAlsoWhenItsSenderIsLost) {
  listen();
  Group tp = start_group(*this, "tp", 2);
  wait_for_workers(2);
  ASSERT_THAT(send_to(*this, tp), IsOk());
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  for (const Deadline deadline(patience()); tp.rank(0).step().version < 2 && !deadline.passed();) continue;
  sender_.reset();
  tp.rank(1).wait_until([](const Observed& now) { return !now.attached; }, "being alone");
  EXPECT_EQ(tp.step(), 2u);
  EXPECT_EQ(tp.rank(1).report().generation, generation_);
  listen();
  wait_for_workers(2);
  ASSERT_THAT(send_to(*this, tp), IsOk());
}

TEST_P(Conformance, ConflictingRanksAreRefusedByName) {
  listen();
  Group tp = start_group(*this, "tp", 2);
  wait_for_workers(2);
  const auto refused = [&](std::string name, std::string group, std::uint32_t rank, std::uint32_t ranks) {
    auto worker = start({.endpoint = endpoint(),
                         .name = std::move(name),
                         .model = ModelSize::kSmall,
                         .group = std::move(group),
                         .rank = rank,
                         .ranks = ranks});
    EXPECT_NE(worker->wait_ready(absl::ZeroDuration()), "");
    return worker->wait_until([](const Observed& now) { return !now.error.empty(); }, "a refusal").error;
  };
  EXPECT_THAT(refused("other", "tp", 1, 2), HasSubstr("rank 1 of group tp is already connected (worker tp-1"));
  EXPECT_THAT(refused("other", "tp", 2, 3), AllOf(HasSubstr("group tp has 2 ranks"), HasSubstr("says 3")));
  EXPECT_THAT(refused("tp", "", 0, 1), HasSubstr("a group and a worker have the same name"));
}

}  // namespace
}  // namespace bascule::test
