// Versions whose decision comes with the seal (docs/design/protocol.md, "Decided ahead").
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::HasSubstr;

// A worker that is alone, and a scheme that neither delivers nor publishes: the decision comes with the seal.
class AloneReplay : public Replay {
 protected:
  explicit AloneReplay(std::string_view options = "") : Replay(options, {}) {
    open();
    send();
    id_ = join(hello("w", 1));
    served_ = take(id_);
    version_ = begin();
    prepare_ = told<Prepare>(id_);
    say(id_, Ready{.version = version_});
    seal(version_);
    decided_ = told<Sealed>(id_).decided;
    EXPECT_EQ(decided_.has_value(), options.empty());
  }
  WorkerId id_ = 0;
  Version version_ = 0;
  Prepare served_, prepare_;
  std::optional<bool> decided_;
};

class DigestAlwaysReplay : public AloneReplay {
 protected:
  DigestAlwaysReplay() : AloneReplay("digest=always") {}
};

TEST_F(DigestAlwaysReplay, WaitsForTheDecision) {
  EXPECT_FALSE(decided_);
  say(id_, Prepared{.version = version_});
  told<Decided>(id_);
}

// It may take long to verify the version.
TEST_F(AloneReplay, WaitsForTheDecisionWhereItCopies) {
  say(id_, Prepared{.version = version_});
  say(id_, Ack{.version = version_});
  release(id_, served_);
  const Version next = begin();
  told<Prepare>(id_);
  say(id_, Ready{.version = next, .copies_behind = true});
  seal(next);
  EXPECT_FALSE(told<Sealed>(id_).decided);
  say(id_, Prepared{.version = next});
  told<Decided>(id_);
}

TEST_F(AloneReplay, FlipsWithoutAnotherMessage) {
  say(id_, Prepared{.version = version_});
  EXPECT_TRUE(told_nothing(id_));
  say(id_, Ack{.version = version_});
  EXPECT_TRUE(settled.at(version_)->complete());
}

// It may have prepared the version and flipped to it, though its message was lost with the connection.
TEST_F(AloneReplay, KeepsItsLeaseWhereItMayHaveFlipped) {
  hang_up(id_);
  EXPECT_TRUE(holds(1, prepare_.slot));
  EXPECT_EQ(fleet.published(), version_);
}

TEST_F(AloneReplay, AbortsWhatItCannotPrepare) {
  say(id_, Failed{.version = version_, .why = "this once"});
  told<Abort>(id_);
  EXPECT_THAT(status_of(version_), StatusIs(absl::StatusCode::kAborted, HasSubstr("this once")));
  EXPECT_EQ(fleet.published(), 1u);
  release(id_, prepare_);
  EXPECT_FALSE(holds(1, prepare_.slot));
  const Version next = send();
  EXPECT_EQ(take(id_).version, next);
}

}  // namespace
}  // namespace bascule::test
