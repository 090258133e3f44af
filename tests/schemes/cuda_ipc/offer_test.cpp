#include <bascule/schemes/cuda_ipc/offer.h>

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

CudaIpcOffer sample() {
  CudaIpcOffer offer{.regions = std::vector<CudaIpcRegion>(3), .relays = true};
  for (std::uint8_t i = 0; i < 16; ++i) offer.regions[0].device[i] = static_cast<std::uint8_t>(200 + i);
  offer.regions[0].bytes = 4 << 20;
  offer.regions[2].bytes = 2 << 20;
  return offer;
}

TEST(CudaIpcOffer, ComesBackAsItWas) {
  const auto came = parse_cuda_ipc_offer(to_bytes(sample()));
  ASSERT_THAT(came, IsOk());
  EXPECT_TRUE(came->relays);
  ASSERT_EQ(came->regions.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(came->regions[i].device, sample().regions[i].device);
    EXPECT_EQ(came->regions[i].bytes, sample().regions[i].bytes);
  }
  EXPECT_EQ(came->slot_bytes(), std::uint64_t{6} << 20);
  EXPECT_EQ(came->descriptors(), 2u);  // the region without bytes has none
}

TEST(CudaIpcOffer, OtherBytesAreRefused) {
  const std::string good = to_bytes(sample());
  const auto refused = StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected an offer"));
  for (std::size_t size = 0; size < good.size(); ++size) {
    if (size == 16 + 24 || size == 16 + 48) continue;  // fewer regions
    EXPECT_THAT(parse_cuda_ipc_offer(good.substr(0, size)), refused) << size;
  }
  std::string older = good;
  older[4] = '\2';
  EXPECT_THAT(parse_cuda_ipc_offer(older), refused);
  CudaIpcOffer large = sample();
  large.regions.resize(1025);
  EXPECT_THAT(parse_cuda_ipc_offer(to_bytes(large)), refused);
  CudaIpcOffer huge = sample();
  huge.regions[0].bytes = huge.regions[1].bytes = std::uint64_t{1} << 62;
  EXPECT_THAT(parse_cuda_ipc_offer(to_bytes(huge)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("exceed 2^62 bytes")));
  EXPECT_THAT(parse_cuda_ipc_region("short"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("24 bytes, found 5")));
}

}  // namespace
}  // namespace bascule
