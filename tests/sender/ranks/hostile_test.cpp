// Rank 1 of three speaks the ranks' messages badly, over the real socket. Whatever it says, the honest ranks' calls end
// with an error that names tensor, range and rank, within bounded memory.
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <limits>

#include "sender/ranks/hostile_fixture.h"
#include <bascule/schemes/registry.h>
#include <bascule/sender/ranks/join.h>
#include <bascule/sender/ranks/shard_packing.h>

namespace bascule::test {
namespace {

using Kind = RankMessage::Kind;
using Numbers = std::vector<std::int64_t>;
using testing::AnyOf;
using testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

struct Attack {
  const char* name;
  std::function<void(RankLine&, RankMessage shards)> speak;  // `shards` is what an honest rank would say
  std::string expected;                                      // in the errors of ranks 0 and 2
  absl::Duration timeout = patience();                       // of rank 0's registration
  const char* options = "";
  bool ends = false;  // rank 1 may end before rank 2 has joined
};

class HostileRank : public HostileFixture, public testing::WithParamInterface<Attack> {
 protected:
  // Tensor big lies on rank 1 alone; rank 1 holds it whole.
  void SetUp() override {
    make_ranks(3, {{"w", DType::kF32, {9, 8}}, {"b", DType::kF32, {}}, {"big", DType::kF32, {100, 100, 10, 1}}});
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      boxes_[static_cast<std::size_t>(rank)].add(0, {3 * rank, 0}, {3, 8});
      boxes_[static_cast<std::size_t>(rank)].add(1, {}, {});
    }
    boxes_[1].add(2, {0, 0, 0, 0}, {100, 100, 10, 1});
    fill(1);
  }
  RankMessage honest() {
    const absl::StatusOr<HeldShards> held = HeldShards::make(source(boxes_[1]), **find_scheme("shm"));
    RankMessage shards(Kind::kShards);
    shards.specs = held->specs();
    shards.description = "a model";
    shards.numbers = held->numbers();
    return shards;
  }
};

// Says `shards` with other boxes. Lists of millions of numbers are given as functions, so that only the test that says
// them makes them.
auto boxes(std::function<Numbers()> numbers) {
  return [numbers = std::move(numbers)](RankLine& line, RankMessage shards) {
    shards.numbers = numbers();
    line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
  };
}
auto boxes(Numbers numbers) {
  return boxes([numbers = std::move(numbers)] { return numbers; });
}
auto specs(std::function<void(std::vector<TensorSpec>&)> change) {
  return [change = std::move(change)](RankLine& line, RankMessage shards) {
    change(shards.specs);
    line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
  };
}
// Repeats some numbers.
Numbers times(std::size_t count, const Numbers& numbers) {
  Numbers all;
  for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}
// Covers big by 100,000 boxes of one element each, without the last.
Numbers all_but_one() {
  Numbers numbers{0, 3, 0, 3, 8};
  for (std::int64_t i = 0; i < 99'999; ++i)
    for (const std::int64_t number : {std::int64_t{2}, i / 1000, i / 10 % 100, i % 10, std::int64_t{0}, std::int64_t{1},
                                      std::int64_t{1}, std::int64_t{1}, std::int64_t{1}})
      numbers.push_back(number);
  return numbers;
}
auto bytes(std::string raw, bool ends) {
  return [raw = std::move(raw), ends](RankLine& line, const RankMessage&) {
    EXPECT_EQ(::send(line.descriptor(), raw.data(), raw.size(), MSG_NOSIGNAL), static_cast<ssize_t>(raw.size()));
    if (ends) ::shutdown(line.descriptor(), SHUT_RDWR);
  };
}
// Registers as an honest rank, and begins the send.
void begin(RankLine& line, const RankMessage& shards, std::uint64_t step = 1) {
  line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
  line.read(Deadline(patience())).IgnoreError();  // the plan
  RankMessage ready(Kind::kReady, 1);
  ready.call = "send()";
  ready.step = step;
  line.write(to_bytes(ready), Deadline(patience())).IgnoreError();
}
void answer(RankLine& line, Kind kind, const absl::Status& status = absl::OkStatus()) {
  line.read(Deadline(patience())).IgnoreError();
  RankMessage message(kind);
  message.status = sent(status);
  line.write(to_bytes(message), Deadline(patience())).IgnoreError();
}

const std::string kLost = cat("rank 1 (pid ", ::getpid(), ") is lost: ");
const std::string kHasNot = cat("rank 1 (pid ", ::getpid(), ") has not ");
// Also long enough for each step of the honest ranks on a busy machine.
constexpr const char* kHasty = kSlowdown == 1 ? "?timeout=3s" : "?timeout=12s";

const std::vector<Attack> kAttacks = {
    {"Overlap", boxes({0, 3, 0, 4, 8, 1}),
     "tensor w F32 [9, 8]: [3:7, 0:8] of rank 1 and [6:9, 0:8] of rank 2 overlap at [6, 0]"},
    {"Hole", boxes({0, 3, 0, 2, 8, 1}), "tensor w F32 [9, 8]: no rank holds [5:6, 0:8]"},
    {"Outside", boxes({0, 7, 0, 3, 8, 1}),
     "tensor w F32 [9, 8]: rank 1 states a box at [7, 0] of shape [3, 8], which does not lie within the tensor"},
    {"OffsetAndShapeOverflow", boxes({0, kMost, 0, kMost, 8}),
     "tensor w F32 [9, 8]: rank 1 states a box at [9223372036854775807, 0]"},
    {"ShapeOverflows", boxes({0, 3, 0, kMost, 8}), "tensor w F32 [9, 8]: rank 1 states a box at [3, 0] of shape [9223"},
    {"NegativeOffset", boxes({0, kLeast, 0, kMost, 8}), "tensor w F32 [9, 8]: rank 1 states a box at [-9223"},
    {"NegativeShape", boxes({0, 3, 0, kLeast, 8}), "rank 1 states a box of the negative shape [-9223"},
    {"TensorThatIsNotThere", boxes({3}), "rank 1: a shard names tensor number 3 of 3"},
    {"NegativeTensor", boxes({kLeast}), "rank 1: a shard names tensor number -9223372036854775808 of 3"},
    {"ListThatEndsEarly", boxes({0, 3, 0, 3}), "rank 1: its list of shards ends early"},
    {"TooManyBoxesOfATensor", boxes([] {
       return times(100'001, {0, 3, 0, 3, 8});
     }),
     "tensor w F32 [9, 8]: expected at most 100000 boxes of all ranks, found 100003"},
    {"TheSameBoxManyTimes", boxes([] {
       return times(99'998, {0, 3, 0, 3, 8});
     }),
     "tensor w F32 [9, 8]: rank 1 states [3:6, 0:8] twice"},
    {"AsManyNumbersAsAMessageHolds", boxes([] { return times(4'000'000, {1}); }),
     "tensor b F32 []: expected at most 100000 boxes of all ranks, found 4000002"},
    {"AHoleAmongManyBoxes", boxes(all_but_one),
     "tensor big F32 [100, 100, 10, 1]: no rank holds [99:100, 99:100, 9:10, 0:1]"},
    {"HugeDimensions", specs([](auto& all) {
       all[0].shape = {kMost, kMost};
     }),
     kLost + "key \"specs[0].shape\": must have"},
    {"NegativeDimension", specs([](auto& all) {
       all[0].shape = {-9, 8};
     }),
     kLost + "key \"specs[0].shape\": must have"},
    {"OtherShape", specs([](auto& all) {
       all[0].shape = {9, 9};
     }),
     "tensor number 0 is w F32 [9, 8] on rank 0 and w F32 [9, 9] on rank 1"},
    {"OtherType", specs([](auto& all) { all[0].dtype = DType::kF16; }),
     "tensor number 0 is w F32 [9, 8] on rank 0 and w F16 [9, 8] on rank 1"},
    {"FewerTensors", specs([](auto& all) { all.pop_back(); }), "rank 0 gives 3 tensors and rank 1 gives 2"},
    {"NoTensors", specs([](auto& all) { all.clear(); }), "rank 0 gives 3 tensors and rank 1 gives 0"},
    {"OtherDescription",
     [](RankLine& line, RankMessage shards) {
       shards.description = std::string(1'000'000, 'x');
       line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
     },
     "rank 1 gives another description than rank 0"},
    {"ControlCharacters",
     [](RankLine& line, RankMessage shards) {
       shards.status = sent(invalid_argument("\x1b[2J"));
       line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
     },
     R"(rank 1: \x1b[2J)"},
    {"WrongOrder",
     [](RankLine& line, const RankMessage&) {
       line.write(to_bytes(RankMessage(Kind::kWritten)), Deadline(patience())).IgnoreError();
     },
     kLost + "it broke the protocol: expected shards, found written"},
    {"AMessageOfRank0",
     [](RankLine& line, const RankMessage&) {
       line.write(to_bytes(RankMessage(Kind::kPlan)), Deadline(patience())).IgnoreError();
     },
     kLost + "it broke the protocol: expected shards, found plan"},
    {"Flood", [](RankLine& line, const RankMessage&) { flood(line, RankMessage(Kind::kReady)); },
     kLost + "it broke the protocol: expected shards, found ready"},
    {"TruncatedAndGone", bytes(std::string("\x00\x10\x00\x00\xa1", 5), true), kLost + "its connection ended",
     patience(), "", /*ends=*/true},
    {"Truncated", bytes(std::string("\x00\x10\x00\x00\xa1", 5), false), kLost + "its message did not come whole",
     patience(), kHasty},
    {"ALongFrame", bytes(std::string("\xff\xff\xff\xff", 4), false), kLost + "a message of 4294967295 bytes"},
    {"AListOfTooMany", bytes(std::string("\x0b\x00\x00\x00\xa1\x61x\x9b\x7f\xff\xff\xff\xff\xff\xff", 15), false),
     kLost},
    {"NoCbor", bytes(std::string("\x04\x00\x00\x00\xff\xff\xff\xff", 8), false), kLost},
    {"NoMap", bytes(std::string("\x01\x00\x00\x00\x80", 5), false), kLost + "expected a map"},
    {"NeverAnswers", [](RankLine& line, const RankMessage&) { line.read(Deadline(patience())).IgnoreError(); },
     kHasNot + "stated its shards", absl::Seconds(kSlowdown)},
    {"AnotherStep",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards, 2);
       answer(line, Kind::kMapped);
     },
     "the ranks are not at the same step: rank 0 calls send() for step 1, rank 1 calls send() for step 2"},
    {"NeverBeginsTheSend",
     [](RankLine& line, const RankMessage& shards) {
       line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
       for (int i = 0; i < 2; ++i) line.read(Deadline(patience())).IgnoreError();
     },
     kHasNot + "called send()", patience(), kHasty},
    {"NeverMaps",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards);
       for (int i = 0; i < 2; ++i) line.read(Deadline(patience())).IgnoreError();
     },
     kHasNot + "mapped a slot", patience(), kHasty},
    {"CannotMap",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards);
       answer(line, Kind::kMapped, absl::ResourceExhaustedError("no memory"));
     },
     cat("rank 1 (pid ", ::getpid(), ") cannot map a slot: no memory")},
    {"WritesBeforeItHasMapped",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards);
       answer(line, Kind::kWritten);
     },
     kLost + "it broke the protocol: expected mapped, found written"},
    {"FloodsTheSend",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards);
       flood(line, RankMessage(Kind::kReady, 2));
     },
     kLost + "it broke the protocol: expected mapped, found ready"},
    {"StatesItsShardsAgain",
     [](RankLine& line, const RankMessage& shards) {
       begin(line, shards);
       line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
     },
     kLost + "it broke the protocol: expected mapped, found shards"},
};

INSTANTIATE_TEST_SUITE_P(Says, HostileRank, testing::ValuesIn(kAttacks),
                         [](const testing::TestParamInfo<Attack>& info) { return std::string(info.param.name); });

TEST_P(HostileRank, IsNamedOnAllRanks) {
  const Attack& attack = GetParam();
  fork_rank(0, attack.timeout, attack.options);
  fork_rank(2, patience(), attack.options);
  {
    absl::StatusOr<RankLine> line = join_rank_0(*Endpoint::parse(endpoint()), 1, 3, Deadline(patience()), nullptr);
    ASSERT_THAT(line, IsOk());
    attack.speak(*line, honest());
    const std::vector<Outcome> all = outcomes();  // the line is open until all calls have ended
    if (attack.ends && all[0].text.find("is gone before all had") != std::string::npos) return;
    EXPECT_THAT(all[0].text, HasSubstr(attack.expected));
    // If rank 2 writes at that moment, it only notices the end.
    EXPECT_THAT(all[1].text, AnyOf(HasSubstr(attack.expected), HasSubstr("rank 0 is lost: its connection ended")));
    for (const Outcome& outcome : all) {
      EXPECT_LT(outcome.text.size(), 2000U);
      // A message has at most 64 MiB and 2^22 numbers.
      if (kSlowdown == 1) {
        EXPECT_LT(outcome.most_kib, 512 << 10) << "KiB, of the whole process";
      }
    }
  }
}

TEST_F(HostileRank, ThatIsNoRankIsRefused) {
  fork_rank(0, absl::Seconds(kSlowdown), "");
  const Endpoint at = *Endpoint::parse(endpoint());
  const auto join = [&](std::uint32_t rank, std::uint32_t ranks) {
    return join_rank_0(at, rank, ranks, Deadline(patience()), nullptr).status();
  };
  EXPECT_THAT(join(0, 3).ToString(), HasSubstr("must be from 1 to ranks - 1"));
  EXPECT_THAT(join(7, 3).ToString(), HasSubstr("must be from 1 to ranks - 1"));
  EXPECT_THAT(join(1, 4).ToString(), HasSubstr("there are 4 ranks, and rank 0 says 3"));
  const absl::StatusOr<RankLine> first = join_rank_0(at, 1, 3, Deadline(patience()), nullptr);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(join(1, 3).ToString(), HasSubstr("rank 1 has joined already, as pid"));
  EXPECT_THAT(outcomes()[0].text, HasSubstr("have not joined: 2"));
}

}  // namespace
}  // namespace bascule::test
