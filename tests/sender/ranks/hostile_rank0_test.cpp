// Rank 0 of two speaks the ranks' messages badly, over the real socket. Whatever it says, the honest rank refuses.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <functional>

#include "sender/ranks/hostile_fixture.h"
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::test {
namespace {

using Kind = RankMessage::Kind;
using testing::HasSubstr;

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
  std::string show(RankLine& line, std::vector<std::int64_t> owned, const std::function<void(RankMessage&)>& change,
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
