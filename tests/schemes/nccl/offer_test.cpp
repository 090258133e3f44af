// An offer survives the round trip, and any bytes are safe to parse.
#include <bascule/schemes/nccl/offer.h>

#include <gmock/gmock.h>

#include <random>

#include "support/status.h"
#include "support/timing.h"
#include <bascule/kernels/digest.h>

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::StatusIs;
using testing::HasSubstr;

NcclOffer an_offer(std::uint64_t piece_bytes = 4 * kernels::kTileBytes) {
  NcclOffer offer;
  offer.environment.version = 22809;
  offer.environment.settings = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"}};
  offer.piece_bytes = piece_bytes;
  return offer;
}

TEST(NcclOffers, ComeBackAsTheyWereMade) {
  const absl::StatusOr<NcclOffer> back = parse_offer(to_bytes(an_offer()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->piece_bytes, an_offer().piece_bytes);
  EXPECT_EQ(back->environment.version, 22809);
  EXPECT_EQ(back->environment.settings, an_offer().environment.settings);
}

TEST(NcclOffers, OthersAreRefusedAndSaidWhy) {
  EXPECT_THAT(parse_offer(""), StatusIs(StatusCode::kInvalidArgument, HasSubstr("found 0 bytes")));
  std::string other = to_bytes(an_offer());
  other[4] = 2;  // a later format
  EXPECT_THAT(parse_offer(other), StatusIs(StatusCode::kInvalidArgument, HasSubstr("format 1")));
  for (const std::uint64_t piece :
       {std::uint64_t{0}, std::uint64_t{kernels::kTileBytes} - 1, std::uint64_t{kernels::kTileBytes} + 64})
    EXPECT_THAT(parse_offer(to_bytes(an_offer(piece))),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("pieces of whole tiles")));
}

TEST(NcclOffers, AnyBytesAreSafe) {
  std::mt19937 random(1);
  const std::string offer = to_bytes(an_offer());
  for (int i = 0; i < 20000 / test::kSlowdown; ++i) {
    std::string bytes = offer;
    for (std::uint32_t change = 0; change <= random() % 4; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const absl::StatusOr<NcclOffer> back = parse_offer(bytes);
    if (!back.ok()) {
      EXPECT_THAT(back, StatusIs(StatusCode::kInvalidArgument, HasSubstr("nccl: ")));
    } else {
      EXPECT_EQ(back->piece_bytes % kernels::kTileBytes, 0u);
    }
  }
}

}  // namespace
}  // namespace bascule::inline v0::nccl
