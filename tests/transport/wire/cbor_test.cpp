#include <bascule/transport/wire/cbor.h>

#include <gmock/gmock.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/cbor_value.h>

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

TEST(CborValue, ReadsEveryKindOfItemWhereItLies) {
  // [500, -500, "ab", h'01', {"k": [1]}, true, null, 1.5 as half, -0.25 as single, 1e300 as double]
  const Bytes bytes = {0x8A, 0x19, 0x01, 0xF4, 0x39, 0x01, 0xF3, 0x62, 'a',  'b',  0x41, 0x01,
                       0xA1, 0x61, 'k',  0x81, 0x01, 0xF5, 0xF6, 0xF9, 0x3E, 0x00, 0xFA, 0xBE,
                       0x80, 0,    0,    0xFB, 0x7E, 0x37, 0xE4, 0x3C, 0x88, 0x00, 0x75, 0x9C};
  ASSERT_TRUE(check_cbor(bytes).ok());
  const CborValue array(bytes.data());
  EXPECT_EQ(array.bytes().size(), bytes.size());
  std::vector<CborValue> items;
  const std::uint8_t* at = array.first_at();
  for (std::size_t i = 0; i < array.size(); ++i) at = items.emplace_back(at).end();
  EXPECT_EQ(at, bytes.data() + bytes.size());
  EXPECT_EQ(items[0].number(), 500u);
  EXPECT_EQ(items[1].negative(), -500);
  EXPECT_EQ(items[2].text(), "ab");
  EXPECT_EQ(items[3].text(), "\x01");
  EXPECT_EQ(items[4].bytes().size(), 5u);
  EXPECT_TRUE(items[5].truth());
  EXPECT_EQ(items[6].kind(), CborValue::Kind::kNull);
  EXPECT_EQ(items[7].real(), 1.5);
  EXPECT_EQ(items[8].real(), -0.25);
  EXPECT_EQ(items[9].real(), 1e300);
  EXPECT_EQ(items[1].shown(), "-500");
  EXPECT_EQ(items[4].shown(), "map");
}

TEST(CborValue, ReadsTheHalvesThatAreNoOrdinaryNumbers) {
  const auto half = [](std::uint8_t high, std::uint8_t low) {
    const Bytes bytes = {0xF9, high, low};
    return CborValue(bytes.data()).real();
  };
  EXPECT_EQ(half(0x00, 0x01), 0x1p-24);
  EXPECT_EQ(half(0x80, 0x00), 0);
  EXPECT_EQ(half(0xFC, 0x00), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(half(0x7E, 0x00)));
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
  EXPECT_THAT(refusal({0x9F, 0xFF}), HasSubstr("an indefinite length"));
  EXPECT_THAT(refusal({0x7F, 0x61, 'x', 0xFF}), HasSubstr("an indefinite length"));
  EXPECT_THAT(refusal({0x1C}), HasSubstr("a reserved length"));
  EXPECT_THAT(refusal({0xC0, 0x60}), HasSubstr("a tag"));
  EXPECT_THAT(refusal({0xF7}), HasSubstr("an unknown simple value"));
  EXPECT_THAT(refusal({0xF8, 0xFF}), HasSubstr("an unknown simple value"));
  EXPECT_THAT(refusal({0xA1, 0x01, 0x02}), HasSubstr("a map's key is not text"));
  EXPECT_THAT(refusal({0x3B, 0x80, 0, 0, 0, 0, 0, 0, 0}), HasSubstr("below -2^63"));
}

}  // namespace
}  // namespace bascule
