// Messages survive the round trip, and any bytes are safe to parse.
#include <bascule/schemes/relay/messages.h>

#include <gmock/gmock.h>

#include "support/schemes/any_messages.h"

namespace bascule::inline v0::relay {
namespace {

using absl::StatusCode;
using test::StatusIs;
using testing::HasSubstr;

RelayMessage a_message(RelayMessage::Kind kind) {
  return {.kind = kind,
          .number = 1ULL << 63,
          .source = ~0ULL,
          .whole = true,
          .share = true,
          .verify = true,
          .handed_on = true,
          .version = 1ULL << 50,
          .spared = {1, 1ULL << 40},
          .place = std::string("\0\xff\x80 GPU", 7),
          .allocated = 1ULL << 50,
          .why = "é"};
}

TEST(RelayMessages, ComeBackAsTheyWereSaid) {
  for (int kind = 0; kind <= static_cast<int>(RelayMessage::Kind::kHide); ++kind) {
    const RelayMessage message = a_message(static_cast<RelayMessage::Kind>(kind));
    const absl::StatusOr<RelayMessage> back = parse_message(to_bytes(message));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kind, message.kind);
    EXPECT_EQ(back->number, message.number);
    EXPECT_EQ(back->source, message.source);
    EXPECT_EQ(back->whole, message.whole);
    EXPECT_EQ(back->share, message.share);
    EXPECT_EQ(back->verify, message.verify);
    EXPECT_EQ(back->handed_on, message.handed_on);
    EXPECT_EQ(back->version, message.version);
    EXPECT_EQ(back->spared, message.spared);
    EXPECT_EQ(back->place, message.place);
    EXPECT_EQ(back->allocated, message.allocated);
    EXPECT_EQ(back->why, message.why);
  }
}

TEST(RelayMessages, ALongReasonIsCutAndStillAMessage) {
  test::expect_a_long_reason_is_cut(a_message(RelayMessage::Kind::kCannot), parse_message);
}

TEST(RelayMessages, AnyBytesAreSafe) {
  test::expect_any_bytes_are_safe(a_message(RelayMessage::Kind::kTake), parse_message, "relay");
}

TEST(RelayMessages, AMessageSparesNoMoreVersionsThanItMay) {
  RelayMessage message = a_message(RelayMessage::Kind::kTake);
  message.spared.assign(64, 7);
  EXPECT_TRUE(parse_message(to_bytes(message)).ok());
  message.spared.assign(65, 7);
  EXPECT_THAT(parse_message(to_bytes(message)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("relay")));
}

}  // namespace
}  // namespace bascule::inline v0::relay
