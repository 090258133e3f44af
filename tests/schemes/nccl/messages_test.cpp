// Messages survive the round trip, and any bytes are safe to parse.
#include <bascule/schemes/nccl/messages.h>

#include <gmock/gmock.h>

#include "support/schemes/any_messages.h"

namespace bascule::inline v0::nccl {
namespace {

GroupMessage a_message(GroupMessage::Kind kind) {
  GroupMessage message{
      .kind = kind, .group = ~0ULL, .rank = 3, .ranks = 1024, .number = 1ULL << 63, .from = 1ULL << 40, .why = "é"};
  for (std::size_t i = 0; i < message.id.bytes.size(); ++i) message.id.bytes[i] = static_cast<char>(i * 37);
  return message;
}

TEST(NcclMessages, ComeBackAsTheyWereSaid) {
  for (int kind = 0; kind <= static_cast<int>(GroupMessage::Kind::kFailed); ++kind) {
    const GroupMessage message = a_message(static_cast<GroupMessage::Kind>(kind));
    const absl::StatusOr<GroupMessage> back = parse_message(to_bytes(message));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kind, message.kind);
    EXPECT_EQ(back->group, message.group);
    EXPECT_EQ(back->rank, message.rank);
    EXPECT_EQ(back->ranks, message.ranks);
    EXPECT_EQ(back->id.bytes, message.id.bytes);
    EXPECT_EQ(back->number, message.number);
    EXPECT_EQ(back->from, message.from);
    EXPECT_EQ(back->why, message.why);
  }
}

TEST(NcclMessages, ALongReasonIsCutAndStillAMessage) {
  test::expect_a_long_reason_is_cut(a_message(GroupMessage::Kind::kFailed), parse_message);
}

TEST(NcclMessages, AnyBytesAreSafe) {
  test::expect_any_bytes_are_safe(a_message(GroupMessage::Kind::kMake), parse_message, "nccl");
}

}  // namespace
}  // namespace bascule::inline v0::nccl
