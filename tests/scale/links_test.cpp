// Links have two directions each, and flows take turns.
#include <gmock/gmock.h>

#include <map>

#include "simulator/links.h"

namespace bascule::simulator {
namespace {

class LinksTest : public testing::Test {
 protected:
  static constexpr double kNic = 50e9, kNvlink = 400e9, kLatency = 10e-6;
  static constexpr std::uint64_t kPiece = 1 << 20;
  static constexpr double kPieceSeconds = static_cast<double>(kPiece) / kNic, kNear = 1e-7;

  // Sends pieces from one node to another; returns the flow.
  Links::FlowId send(Node from, Node to, int pieces) {
    const Links::FlowId id = links_.open(from, to, 0, [this, from, to](Time there) {
      there_[{from, to}].push_back(seconds_between(began_, there));
    });
    for (int i = 0; i < pieces; ++i) links_.push(id, kPiece);
    return id;
  }
  const std::vector<double>& there(Node from, Node to) {
    while (agenda_.step()) {
    }
    return there_[{from, to}];
  }

  Agenda agenda_;
  const Time began_ = agenda_.now();
  // Two engines on each of three hosts.
  Links links_{agenda_,
               {.engines = 6,
                .hosts = 3,
                .nvlink = {.bytes_per_second = kNvlink, .latency_seconds = 0},
                .nic = {.bytes_per_second = kNic, .latency_seconds = kLatency}}};
  std::map<std::pair<Node, Node>, std::vector<double>> there_;
};

TEST_F(LinksTest, PiecesComeOneAfterTheOther) {
  send(1, 3, 3);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(there(1, 3)[i], static_cast<double>(i + 1) * kPieceSeconds + kLatency, kNear);
}

TEST_F(LinksTest, FlowsOutOfOneNicTakeTurns) {
  send(1, 3, 2);
  send(2, 5, 2);  // another engine of that host, to another host
  EXPECT_NEAR(there(1, 3)[0], 1 * kPieceSeconds + kLatency, kNear);
  EXPECT_NEAR(there(1, 3)[1], 3 * kPieceSeconds + kLatency, kNear);
  EXPECT_NEAR(there(2, 5)[0], 2 * kPieceSeconds + kLatency, kNear);
  EXPECT_NEAR(there(2, 5)[1], 4 * kPieceSeconds + kLatency, kNear);
}

TEST_F(LinksTest, FlowsIntoOneNicTakeAsLongAsAllOfThem) {
  send(1, 5, 10);
  send(3, 6, 10);
  EXPECT_NEAR(std::max(there(1, 5).back(), there(3, 6).back()), 20 * kPieceSeconds + kLatency, kNear);
  EXPECT_GT(std::min(there(1, 5).back(), there(3, 6).back()), 19 * kPieceSeconds);
}

TEST_F(LinksTest, TheTwoDirectionsOfALinkDoNotMeet) {
  send(1, 3, 10);
  send(3, 1, 10);
  EXPECT_NEAR(there(1, 3).back(), 10 * kPieceSeconds + kLatency, kNear);
  EXPECT_NEAR(there(3, 1).back(), 10 * kPieceSeconds + kLatency, kNear);
}

TEST_F(LinksTest, NicsAndNvlinksDoNotMeet) {
  send(1, 2, 10);
  send(1, 3, 10);
  EXPECT_NEAR(there(1, 2).back(), 10 * static_cast<double>(kPiece) / kNvlink, kNear);
  EXPECT_NEAR(there(1, 3).back(), 10 * kPieceSeconds + kLatency, kNear);
}

TEST_F(LinksTest, BytesCountWhereTheyLeave) {
  send(kTrainer, 1, 1);
  send(1, 2, 2);
  send(1, 3, 4);
  (void)there(1, 3);
  EXPECT_EQ(links_.carried().of(LinkKind::kTrainer), kPiece);
  EXPECT_EQ(links_.carried().of(LinkKind::kNvlink), 2 * kPiece);
  EXPECT_EQ(links_.carried().of(LinkKind::kNic), 4 * kPiece);
  EXPECT_EQ(links_.carried().whole(), 7 * kPiece);
}

TEST_F(LinksTest, AFlowThatIsClosedLeavesItsLinkToOthersAtOnce) {
  const Links::FlowId closed = send(1, 3, 5);
  send(1, 5, 1);
  agenda_.after(duration_of(kPieceSeconds / 2), [&] { links_.close(closed); });
  EXPECT_NEAR(there(1, 5).front(), 1.5 * kPieceSeconds + kLatency, kNear);
  EXPECT_TRUE(there(1, 3).empty());
  EXPECT_NEAR(static_cast<double>(links_.carried().cut_bytes), kPiece / 2.0, kPiece / 1000.0);
  EXPECT_EQ(links_.carried().whole(), kPiece);
}

}  // namespace
}  // namespace bascule::simulator
