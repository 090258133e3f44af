// A process that speaks the ranks' messages badly, over the real socket. Whatever it says, the honest ranks' calls end
// with an error that names tensor, range and rank, within bounded memory. Rank 1 of three is hostile, or rank 0 of two.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>

#include "sender/ranks/ranks_fixture.h"
#include <bascule/schemes/registry.h>
#include <bascule/sender/ranks/join.h>
#include <bascule/sender/ranks/messages.h>
#include <bascule/sender/ranks/rank_line.h>
#include <bascule/sender/ranks/shard_packing.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::test {
namespace {

using Kind = RankMessage::Kind;
using Numbers = std::vector<std::int64_t>;
using testing::AnyOf;
using testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

// What a rank in a forked process came to.
struct Outcome {
  std::string text;  // the status of register_shards, or of the send of step 1 after it
  long most_kib = 0;
};

class HostileFixture : public RanksFixture {
 protected:
  static void say(RankLine& line, const RankMessage& message) {
    EXPECT_THAT(line.write(to_bytes(message), Deadline(patience())), IsOk());
  }
  static RankMessage hear(RankLine& line) {
    const absl::StatusOr<RankLine::Frame> frame = line.read(Deadline(patience()));
    EXPECT_THAT(frame, IsOk());
    return frame.ok() ? parse_rank_message(frame->bytes).value_or(RankMessage()) : RankMessage();
  }
  // Forks a rank that registers, and then sends step 1. This process has no threads yet.
  void fork_rank(std::size_t rank, absl::Duration timeout, const std::string& options) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      absl::Status status;
      {
        absl::StatusOr<Sender> sender = listen(rank, boxes_.size(), options);
        status = sender.status();
        if (status.ok()) status = sender->register_shards(source(boxes_[rank]), "a model", timeout);
        if (status.ok()) status = sender->send({.step = 1}).status();
      }
      const std::string text = status.ToString();
      ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    forked_.emplace_back(pid, UniqueFd(ends[0]));
  }
  // The outcomes of the forked ranks, in their order.
  std::vector<Outcome> outcomes() {
    std::vector<Outcome> all;
    for (const auto& [pid, end] : forked_) {
      Outcome& outcome = all.emplace_back();
      std::array<char, 4096> bytes{};
      for (ssize_t count = 0; (count = ::read(end.get(), bytes.data(), bytes.size())) > 0;)
        outcome.text.append(bytes.data(), static_cast<std::size_t>(count));
      rusage usage{};
      EXPECT_EQ(::wait4(pid, nullptr, 0, &usage), pid);
      outcome.most_kib = usage.ru_maxrss;
    }
    forked_.clear();
    return all;
  }

  std::vector<std::pair<pid_t, UniqueFd>> forked_;
};

// ---- rank 1 of three ----

struct Attack {
  const char* name;
  std::function<void(RankLine&, RankMessage shards)> speak;  // `shards` is what an honest rank would say
  std::string expected;                                      // in the errors of ranks 0 and 2
  absl::Duration timeout = patience();                       // of rank 0's registration
  const char* options = "";
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

// Says `shards` with other boxes.
auto boxes(Numbers numbers) {
  return [numbers = std::move(numbers)](RankLine& line, RankMessage shards) {
    shards.numbers = numbers;
    line.write(to_bytes(shards), Deadline(patience())).IgnoreError();
  };
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
// Says the same message until the other end hangs up, but not for ever.
void flood(RankLine& line, const RankMessage& message) {
  const std::string one = to_bytes(message);
  for (int i = 0; i < 1'000'000 && line.write(one, Deadline(patience())).ok(); ++i) {
  }
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
    {"TooManyBoxesOfATensor", boxes(times(100'001, {0, 3, 0, 3, 8})),
     "tensor w F32 [9, 8]: expected at most 100000 boxes of all ranks, found 100003"},
    {"TheSameBoxManyTimes", boxes(times(99'998, {0, 3, 0, 3, 8})),
     "tensor w F32 [9, 8]: rank 1 states [3:6, 0:8] twice"},
    {"AsManyNumbersAsAMessageHolds", boxes(times(4'000'000, {1})),
     "tensor b F32 []: expected at most 100000 boxes of all ranks, found 4000002"},
    {"AHoleAmongManyBoxes", boxes(all_but_one()),
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
    {"TruncatedAndGone", bytes(std::string("\x00\x10\x00\x00\xa1", 5), true), kLost + "its connection ended"},
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

// ---- rank 0 of two ----

class HostileRank0 : public HostileFixture {
 protected:
  void SetUp() override {
    make_ranks(2, {{"w", DType::kF32, {64, 64}}});
    boxes_[1].add(0, {first_row_, 0}, {32, 64});
    fill(1);
    const std::string path = Endpoint::parse(endpoint())->control_socket();
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    listens_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listens_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listens_.get(), 4), 0);
    fork_rank(1, patience(), "");
  }
  // Lets the honest rank in, and returns the line to it, and what it says.
  RankLine let_in() {
    RankLine asks{ProcessFd(UniqueFd(::accept4(listens_.get(), nullptr, nullptr, SOCK_CLOEXEC)))};
    EXPECT_THAT(asks.read(Deadline(patience())), IsOk());
    auto ends = RankLine::make_ends();
    const std::vector<std::uint8_t> welcome = encode(Message(RankWelcome{.epoch = 1}));
    const std::array<int, 1> end{ends->second.get()};
    EXPECT_THAT(asks.write({reinterpret_cast<const char*>(welcome.data()), welcome.size()}, Deadline(patience()), end),
                IsOk());
    return RankLine(std::move(ends->first));
  }
  // Goes on up to the slot, which it describes as it likes. Returns what the honest rank says of it.
  std::string show(RankLine& line, Numbers owned, const std::function<void(RankMessage&)>& change,
                   std::uint64_t slot_bytes, std::size_t descriptors) {
    EXPECT_EQ(hear(line).kind, Kind::kShards);
    RankMessage plan(Kind::kPlan);
    plan.numbers = std::move(owned);
    say(line, plan);
    EXPECT_EQ(hear(line).kind, Kind::kReady);
    RankMessage slot(Kind::kSlot, 1);
    slot.layout = Layout::arrange({{"w", DType::kF32, {64, 64}}}, {}).value();
    slot.bytes = slot.layout->bytes();
    change(slot);
    const absl::StatusOr<SlotMemory> memory = make_unsealed_memfd("bascule-test", slot_bytes);
    EXPECT_THAT(memory, IsOk());
    const std::vector<int> both(descriptors, memory->descriptor.get());
    EXPECT_THAT(line.write(to_bytes(slot), Deadline(patience()), both), IsOk());
    const RankMessage mapped = hear(line);
    EXPECT_EQ(mapped.kind, Kind::kMapped);
    return received(mapped.status).ToString();
  }

  std::int64_t first_row_ = 32;  // of the honest rank's box
  UniqueFd listens_;
};

constexpr std::uint64_t kSlotBytes = 64 * 64 * 4;

TEST_F(HostileRank0, ThatNamesABoxThatIsNotThereIsRefused) {
  {
    RankLine line = let_in();
    EXPECT_THAT(show(
                    line, {5}, [](RankMessage&) {}, kSlotBytes, 2),
                HasSubstr("rank 0 names box 5 of 1"));
  }
  EXPECT_THAT(outcomes()[0].text, HasSubstr("rank 0 is lost: its connection ended"));
}
class HostileRank0OfAWrongBox : public HostileRank0 {
 protected:
  HostileRank0OfAWrongBox() { first_row_ = 40; }  // it should refuse the box, which ends in row 72 of 64
};
TEST_F(HostileRank0OfAWrongBox, ThatTakesItIsRefused) {
  {
    RankLine line = let_in();
    EXPECT_THAT(show(
                    line, {0}, [](RankMessage&) {}, kSlotBytes, 2),
                HasSubstr("rank 0 names a box that does not lie within tensor w F32 [64, 64]"));
  }
  outcomes();
}
TEST_F(HostileRank0, ThatShowsASlotThatIsTooShortIsRefused) {
  {
    RankLine line = let_in();
    EXPECT_THAT(show(
                    line, {0}, [](RankMessage&) {}, kSlotBytes / 2, 2),
                HasSubstr("rank 0 shows a slot of 8192 bytes, expected 16384"));
  }
  outcomes();
}
TEST_F(HostileRank0, ThatShowsASlotBeyondAllMemoryIsRefused) {
  {
    RankLine line = let_in();
    EXPECT_THAT(show(
                    line, {0}, [](RankMessage& slot) { slot.data_offset = ~std::uint64_t{0} - 100; }, kSlotBytes, 2),
                HasSubstr("after the first 18446744073709551515"));
  }
  outcomes();
}
TEST_F(HostileRank0, ThatShowsNoMemoryIsRefused) {
  {
    RankLine line = let_in();
    EXPECT_THAT(show(
                    line, {0}, [](RankMessage&) {}, kSlotBytes, 1),
                HasSubstr("without its memory, its table"));
  }
  outcomes();
}
TEST_F(HostileRank0, ThatTalksWithoutEndIsLeft) {
  RankLine line = let_in();
  flood(line, RankMessage(Kind::kForget, 1));
  EXPECT_THAT(outcomes()[0].text, HasSubstr("rank 0 is lost: it broke the protocol"));
}

}  // namespace
}  // namespace bascule::test
