#include "transport/cbor.h"

#include <gmock/gmock.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "transport/text.h"

namespace bascule {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

std::string refusal(const Bytes& bytes) {
  const absl::Status status = check_cbor(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(message_of(status));
}

TEST(Cbor, TakesEveryKindOfItem) {
  // {"a": [1, -2, h'00', "b", {}, []], "": [true, false, null, 1.0 as half, single, double]}
  EXPECT_TRUE(check_cbor(Bytes{0xA2, 0x61, 'a',  0x86, 0x01, 0x21, 0x41, 0x00, 0x61, 'b',  0xA0, 0x80,
                               0x60, 0x86, 0xF5, 0xF4, 0xF6, 0xF9, 0x3C, 0,    0xFA, 0x3F, 0x80, 0,
                               0,    0xFB, 0x3F, 0xF0, 0,    0,    0,    0,    0,    0})
                  .ok());
}

TEST(Cbor, TakesLengthsOfEveryWidth) {
  EXPECT_TRUE(check_cbor(Bytes{0x78, 1, 'x'}).ok());
  EXPECT_TRUE(check_cbor(Bytes{0x79, 0, 1, 'x'}).ok());
  EXPECT_TRUE(check_cbor(Bytes{0x7A, 0, 0, 0, 1, 'x'}).ok());
  EXPECT_TRUE(check_cbor(Bytes{0x7B, 0, 0, 0, 0, 0, 0, 0, 1, 'x'}).ok());
}

TEST(Cbor, BoundsTheDepth) {
  Bytes bytes(kMaxCborDepth, 0x81);
  bytes.push_back(0x00);
  EXPECT_TRUE(check_cbor(bytes).ok());
  bytes.insert(bytes.begin(), 0x81);
  EXPECT_THAT(refusal(bytes), HasSubstr("nested deeper than 8"));
  EXPECT_THAT(refusal(Bytes(1 << 20, 0x81)), HasSubstr("nested deeper than 8"));
}

TEST(Cbor, BoundsTheItems) {
  Bytes bytes = {0x9A, 0x00, 0x40, 0x00, 0x00};  // an array of 4 Mi
  bytes.resize(bytes.size() + (4u << 20), 0x00);
  EXPECT_THAT(refusal(bytes), HasSubstr("more than 4194304 items"));
}

TEST(Cbor, KeepsLengthsWithinTheInput) {
  EXPECT_THAT(refusal({0x62, 'x'}), HasSubstr("a string of 2 bytes, 1 are left"));
  EXPECT_THAT(refusal({0x5B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1}), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal({0x9B, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}), HasSubstr("an array of"));
  EXPECT_THAT(refusal({0xBB, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1}), HasSubstr("a map of"));
  EXPECT_THAT(refusal({0xA1, 0x60}), HasSubstr("a map of 1 entries"));
}

TEST(Cbor, RefusesWhatIsCutOffOrGoesOn) {
  EXPECT_THAT(refusal({}), HasSubstr("at byte 0 of 0: it is cut off"));
  EXPECT_THAT(refusal({0x19, 0x01}), HasSubstr("cut off"));
  EXPECT_THAT(refusal({0x82, 0x19, 0x01}), HasSubstr("cut off"));
  EXPECT_THAT(refusal({0x00, 0x00}), HasSubstr("1 bytes follow"));
}

TEST(Cbor, RefusesWhatNoMessageHolds) {
  EXPECT_THAT(refusal({0x9F, 0xFF}), HasSubstr("a length without end"));
  EXPECT_THAT(refusal({0x7F, 0x61, 'x', 0xFF}), HasSubstr("a length without end"));
  EXPECT_THAT(refusal({0x1C}), HasSubstr("a reserved length"));
  EXPECT_THAT(refusal({0xC0, 0x60}), HasSubstr("a tag"));
  EXPECT_THAT(refusal({0xF7}), HasSubstr("an unknown simple value"));
  EXPECT_THAT(refusal({0xF8, 0xFF}), HasSubstr("an unknown simple value"));
  EXPECT_THAT(refusal({0xA1, 0x01, 0x02}), HasSubstr("a map's key is not text"));
  EXPECT_THAT(refusal({0x3B, 0x80, 0, 0, 0, 0, 0, 0, 0}), HasSubstr("below -2^63"));
}

}  // namespace
}  // namespace bascule
