// Transfers: compares times computed piece by piece with closed forms, and checks that each byte moves once.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>

#include "simulator/transfer.h"
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

constexpr double kNvlink = 400e9, kNic = 50e9;                // bytes per second
constexpr double kNvlinkLatency = 5e-6, kNicLatency = 10e-6;  // seconds
constexpr Pieces kPieces{.bytes = 48 << 20, .piece_bytes = 1 << 20};
constexpr double kBytes = 48 << 20, kPiece = 1 << 20;
constexpr double kNear = 1e-6;  // seconds: times are rounded to nanoseconds, some hundred times in a row

class TransferTest : public testing::Test {
 protected:
  // The time of one delivery to all engines. Call it once.
  double run(std::string_view route, Machine machine, Pieces pieces = kPieces) {
    begin(route, machine, pieces);
    return finish();
  }
  void begin(std::string_view route, Machine machine, Pieces pieces = kPieces) {
    machine.nvlink = {.bytes_per_second = kNvlink, .latency_seconds = latency_ ? kNvlinkLatency : 0};
    machine.nic = {.bytes_per_second = kNic, .latency_seconds = latency_ ? kNicLatency : 0};
    machine_ = machine;
    links_ = std::make_unique<Links>(agenda_, machine);
    std::vector<Node> to(static_cast<std::size_t>(machine.engines));
    std::iota(to.begin(), to.end(), 1);
    transfer_ = std::make_unique<Transfer>(agenda_, *links_, make_route(*parse_route(route), machine, to), pieces,
                                           successor_, [this] { done_at_ = now(); });
    transfer_->start();
  }
  void at(double seconds, std::function<void()> what) { agenda_.at(began_ + duration_of(seconds), std::move(what)); }
  double finish() {
    while (agenda_.step()) {
    }
    EXPECT_TRUE(transfer_->finished());
    return done_at_;
  }
  double now() const { return seconds_between(began_, agenda_.now()); }
  std::uint64_t received() const {
    std::uint64_t bytes = 0;
    for (Node node = 1; node <= machine_.engines; ++node) bytes += transfer_->received_bytes(node);
    return bytes;
  }

  bool latency_ = true;
  Successor successor_ = Successor::kAbove;
  Agenda agenda_;
  const Time began_ = agenda_.now();
  Machine machine_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<Transfer> transfer_;
  double done_at_ = -1;
};

// ---- closed forms ----

TEST_F(TransferTest, AStarTakesACopyForEachEngine) {
  EXPECT_NEAR(run("star", {.engines = 24, .hosts = 3}), 24 * kBytes / kNic + kNicLatency, kNear);
}

TEST_F(TransferTest, AStarInAHostLeavesOverTheTrainersNvlink) {
  EXPECT_NEAR(run("star", {.engines = 7, .hosts = 1, .trainer_apart = false}), 7 * kBytes / kNvlink + kNvlinkLatency,
              kNear);
}

TEST_F(TransferTest, AChainInAHostTakesACopyAndAPieceAHop) {
  EXPECT_NEAR(run("chain", {.engines = 7, .hosts = 1, .trainer_apart = false}),
              kBytes / kNvlink + 6 * kPiece / kNvlink + 7 * kNvlinkLatency, kNear);
}

TEST_F(TransferTest, AChainOverHostsTakesACopyOverTheNicAndThenTheLastHostsHops) {
  EXPECT_NEAR(run("chain", {.engines = 80, .hosts = 10}),
              kBytes / kNic + 9 * kPiece / kNic + 10 * kNicLatency + 7 * (kPiece / kNvlink + kNvlinkLatency), kNear);
}

// Each level sends D pieces in the time of D, and adds that time once.
TEST_F(TransferTest, ATreesNodesShareTheirEgressByItsDegree) {
  for (const int degree : {2, 3, 4}) {
    SetUp();
    const double start = now();
    const int engines = degree + degree * degree;  // two levels
    run(cat("tree", degree), {.engines = engines, .hosts = 1, .trainer_apart = false});
    EXPECT_NEAR(done_at_ - start, degree * (kBytes + kPiece) / kNvlink + 2 * kNvlinkLatency, kNear) << degree;
  }
}

TEST_F(TransferTest, StripesByTheirOwnNicsTakeTheirPartOfACopyEach) {
  EXPECT_NEAR(run("striped1", {.engines = 20, .hosts = 10, .nics = 2}),
              kBytes / 2 / kNic + 9 * kPiece / kNic + 10 * kNicLatency + kPiece / kNvlink + kNvlinkLatency, kNear);
}

// Every NIC sends one copy, instead of D copies by half of the NICs.
TEST_F(TransferTest, StripedTreesTakeLittleMoreThanACopyWhereATreeTakesTwo) {
  constexpr Pieces kSmall{.bytes = 48 << 20, .piece_bytes = 64 << 10};
  const double striped = run("striped2", {.engines = 64, .hosts = 64}, kSmall);
  EXPECT_GT(striped, kBytes / kNic);
  EXPECT_LT(striped, 1.1 * kBytes / kNic);
  const double start = now();
  EXPECT_GT(run("tree2", {.engines = 64, .hosts = 64}, kSmall) - start, 2 * kBytes / kNic);
}

TEST_F(TransferTest, TheLastPieceMayBeShorter) {
  const Pieces pieces{.bytes = (5 << 20) + 1000, .piece_bytes = 1 << 20};
  EXPECT_NEAR(run("chain", {.engines = 1, .hosts = 1}, pieces), ((5 << 20) + 1000) / kNic + kNicLatency, kNear);
  EXPECT_EQ(transfer_->received_bytes(1), pieces.bytes);
}

TEST_F(TransferTest, AVersionSmallerThanAPieceIsOnePiece) {
  EXPECT_NEAR(run("striped4", {.engines = 8, .hosts = 8}, {.bytes = 1000, .piece_bytes = 1 << 20}),
              // to the root, to the last of four below it, and to the last of three below that one
              3 * kNicLatency + 8 * 1000 / kNic, 1e-6);
  EXPECT_EQ(received(), 8000u);
}

// ---- bytes ----

class TransferByRoute : public TransferTest, public testing::WithParamInterface<const char*> {
 protected:
  void let_many_die(Successor successor) {
    successor_ = successor;
    begin(GetParam(), {.engines = 64, .hosts = 8});
    std::vector<bool> lost(65, false);
    for (const Node node : {1, 2, 9, 33, 17, 40, 64, 8, 57}) {
      lost[static_cast<std::size_t>(node)] = true;
      at(1e-4 + 1e-5 * node, [this, node] { transfer_->lose(node); });
      at(6e-4 + 1.5e-5 * node, [this, node] { transfer_->repair(node); });
    }
    finish();
    for (Node node = 1; node <= 64; ++node) {
      const bool lives = !lost[static_cast<std::size_t>(node)];
      EXPECT_EQ(transfer_->received_bytes(node) == kPieces.bytes, lives) << node;
      EXPECT_EQ(transfer_->whole_at(node).has_value(), lives) << node;
    }
    // All bytes that left whole came, except pieces between the last link and a node when it died.
    const std::uint64_t whole = links_->carried().whole();
    EXPECT_GE(whole, received());
    EXPECT_LE(whole, received() + 9 * 4 * kPieces.piece_bytes);
  }
};

TEST_P(TransferByRoute, BringsEachByteToEachEngineOnce) {
  for (const Machine& machine : {Machine{.engines = 512, .hosts = 64},
                                 {.engines = 63, .hosts = 8, .nics = 4, .trainer_apart = false},
                                 {.engines = 3, .hosts = 1, .trainer_apart = false}}) {
    const Pieces pieces{.bytes = (20 << 20) + 12345, .piece_bytes = 1 << 20};
    run(GetParam(), machine, pieces);
    for (Node node = 1; node <= machine.engines; ++node) EXPECT_EQ(transfer_->received_bytes(node), pieces.bytes);
    EXPECT_EQ(links_->carried().whole(), static_cast<std::uint64_t>(machine.engines) * pieces.bytes);
    EXPECT_EQ(links_->carried().cut_bytes, 0u);
  }
}

TEST_P(TransferByRoute, CrossesTheNicsOnceForEachHost) {
  run(GetParam(), {.engines = 64, .hosts = 8});
  const Carried& carried = links_->carried();
  const std::uint64_t between = carried.of(LinkKind::kTrainer) + carried.of(LinkKind::kNic);
  EXPECT_EQ(between, (std::string_view(GetParam()) == "star" ? 64 : 8) * kPieces.bytes);
  EXPECT_EQ(carried.of(LinkKind::kNvlink), 64 * kPieces.bytes - between);
}

TEST_P(TransferByRoute, SurvivorsOfManyDeathsHaveEverything) { let_many_die(Successor::kAbove); }
TEST_P(TransferByRoute, SurvivorsOfManyDeathsHaveEverythingFromThoseBeside) { let_many_die(Successor::kBeside); }

INSTANTIATE_TEST_SUITE_P(Transfers, TransferByRoute,
                         testing::Values("star", "chain", "tree2", "tree3", "tree4", "striped1", "striped2",
                                         "striped4"),
                         [](const auto& info) { return std::string(info.param); });

// ---- deaths ----

TEST_F(TransferTest, WhatIsBelowADeadNodeWaitsAndGoesOnFromTheFirstPieceThatItLacks) {
  constexpr double kPieceSeconds = kPiece / kNvlink, kDies = 10.5 * kPieceSeconds, kRepaired = kDies + 1e-3;
  latency_ = false;
  begin("chain", {.engines = 2, .hosts = 1, .trainer_apart = false});
  at(kDies, [this] { transfer_->lose(1); });
  at(kRepaired, [this] {
    EXPECT_EQ(transfer_->received_bytes(1), 10 * kPieces.piece_bytes);
    EXPECT_EQ(transfer_->received_bytes(2), 9 * kPieces.piece_bytes);
    transfer_->repair(1);
  });
  EXPECT_NEAR(finish(), kRepaired + 39 * kPieceSeconds, kNear);
  EXPECT_EQ(transfer_->received_bytes(2), kPieces.bytes);
  EXPECT_EQ(links_->carried().of(LinkKind::kTrainer), (10 + 39) * kPieces.piece_bytes);
  EXPECT_EQ(links_->carried().of(LinkKind::kNvlink), 9 * kPieces.piece_bytes);
  EXPECT_NEAR(static_cast<double>(links_->carried().cut_bytes), kPiece, kPiece / 100);  // two halves
}

TEST_F(TransferTest, APieceThatLeftADeadNodeInTimeIsNotAskedForAgain) {
  constexpr Pieces kShortAtTheEnd{.bytes = (48 << 20) - 1000, .piece_bytes = 1 << 20};
  begin("chain", {.engines = 2, .hosts = 1, .trainer_apart = false}, kShortAtTheEnd);
  at(10.5 * kPiece / kNvlink, [this] {  // a latency takes as long as two pieces
    EXPECT_LT(transfer_->received_bytes(1), 10 * kPieces.piece_bytes);
    transfer_->lose(1);
    transfer_->repair(1);
  });
  finish();
  EXPECT_EQ(links_->carried().whole(), 10 * kPieces.piece_bytes + kShortAtTheEnd.bytes);  // ten left for the dead one
  EXPECT_EQ(transfer_->received_bytes(2), kShortAtTheEnd.bytes);
}

TEST_F(TransferTest, ASuccessorIsOneThatLives) {
  successor_ = Successor::kBeside;
  begin("tree2", {.engines = 8, .hosts = 1});  // 2 and 3 are below 1
  at(1e-4, [this] { transfer_->lose(1), transfer_->lose(2); });
  at(2e-4, [this] { transfer_->repair(1); });
  at(1, [this] { transfer_->repair(2); });
  finish();
  ASSERT_TRUE(transfer_->whole_at(3));
  EXPECT_LT(seconds_between(began_, *transfer_->whole_at(3)), 5e-3);
}

TEST_F(TransferTest, ADeadNodeAboveThatNobodyNoticedIsPassedOver) {
  begin("chain", {.engines = 3, .hosts = 1, .trainer_apart = false});
  at(1e-5, [this] { transfer_->lose(1), transfer_->lose(2); });
  at(1e-3, [this] { transfer_->repair(2); });
  at(1, [this] { transfer_->repair(1); });
  finish();
  ASSERT_TRUE(transfer_->whole_at(3));
  EXPECT_LT(seconds_between(began_, *transfer_->whole_at(3)), 2e-3);
}

// The leader of host 1 of three dies. Its host and the next host ask for the rest.
TEST_F(TransferTest, WithASuccessorBesideAHostIsEnteredOnceAfterADeathToo) {
  std::array<double, 2> took{};
  for (const Successor successor : {Successor::kAbove, Successor::kBeside}) {
    successor_ = successor;
    latency_ = false;
    const double start = now();
    begin("chain", {.engines = 24, .hosts = 3});
    agenda_.after(duration_of(17.5 * kPiece / kNic), [this] { transfer_->lose(9), transfer_->repair(9); });
    took.at(static_cast<std::size_t>(successor)) = finish() - start;
    for (Node node = 1; node <= 24; ++node)
      EXPECT_EQ(transfer_->received_bytes(node), node == 9 ? 16 * kPieces.piece_bytes : kPieces.bytes) << node;
    // In both cases host 0 sends host 1 the dead leader's pieces and the rest.
    EXPECT_GE(links_->carried().of(LinkKind::kNic), 2 * kPieces.bytes);
  }
  // By the first rule host 0 sends the rest twice: some 32 pieces more.
  EXPECT_NEAR(took[0] - took[1], 32 * kPiece / kNic, 3 * kPiece / kNic);
}

TEST_F(TransferTest, WhereAllAboveAreDeadTheTrainerSendsTheRest) {
  begin("chain", {.engines = 4, .hosts = 1, .trainer_apart = false});
  const double dies = 20 * kPiece / kNvlink;
  at(dies, [this] { transfer_->lose(3), transfer_->lose(1), transfer_->lose(2); });
  at(dies + 1e-3, [this] { transfer_->repair(2), transfer_->repair(3), transfer_->repair(1); });
  finish();
  EXPECT_EQ(transfer_->received_bytes(4), kPieces.bytes);
  EXPECT_GT(links_->carried().of(LinkKind::kTrainer), kPieces.bytes);
}

TEST_F(TransferTest, ItIsNotDoneBeforeADeathIsNoticed) {
  begin("star", {.engines = 2, .hosts = 1, .trainer_apart = false});
  at(1e-5, [this] { transfer_->lose(2); });
  at(2.0, [this] { transfer_->repair(2); });
  EXPECT_NEAR(finish(), 2.0, kNear);
}

TEST_F(TransferTest, WhereAllDieItIsDone) {
  begin("striped2", {.engines = 8, .hosts = 1});
  for (Node node = 1; node <= 8; ++node) at(1e-5, [this, node] { transfer_->lose(node), transfer_->repair(node); });
  EXPECT_NEAR(finish(), 1e-5, kNear);
}

TEST_F(TransferTest, OneThatWasStoppedMovesNothingMore) {
  begin("chain", {.engines = 8, .hosts = 1});
  std::uint64_t bytes = 0;
  at(2e-4, [&] {
    transfer_->stop();
    bytes = received();
  });
  while (agenda_.step()) {
  }
  EXPECT_FALSE(transfer_->finished());
  EXPECT_EQ(received(), bytes);
  EXPECT_LT(bytes, 8 * kPieces.bytes);
  EXPECT_EQ(done_at_, -1);
}

}  // namespace
}  // namespace bascule::simulator
