// Compares the types of schemes/nccl/library.h with this machine's NCCL header. Built only if there is one.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include <bascule/schemes/nccl/library.h>

#if NCCL_VERSION_CODE >= 22700
namespace bascule::inline v0::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<UniqueId> && std::is_standard_layout_v<UniqueId>);
static_assert(std::is_same_v<Stream, cudaStream_t>);
static_assert(kUint8 == ncclUint8);

constexpr bool is(Code code, ncclResult_t theirs) { return static_cast<int>(code) == static_cast<int>(theirs); }
static_assert(sizeof(Code) == sizeof(ncclResult_t));
static_assert(is(Code::kSuccess, ncclSuccess) && is(Code::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(is(Code::kSystemError, ncclSystemError) && is(Code::kInternalError, ncclInternalError));
static_assert(is(Code::kInvalidArgument, ncclInvalidArgument) && is(Code::kInvalidUsage, ncclInvalidUsage));
static_assert(is(Code::kRemoteError, ncclRemoteError) && is(Code::kInProgress, ncclInProgress));

static_assert(std::is_standard_layout_v<Config> && alignof(Config) == alignof(ncclConfig_t));
#if NCCL_VERSION_CODE < 22800
static_assert(sizeof(Config) == sizeof(ncclConfig_t));
#else
static_assert(sizeof(Config) == offsetof(ncclConfig_t, nChannelsPerNetPeer));
#endif

constexpr Config kOurs;
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
#define BASCULE_EXPECT_SAME(ours, theirs)                                  \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs)); \
  static_assert(std::is_same_v<decltype(kOurs.ours), decltype(kTheirs.theirs)>)
#define BASCULE_EXPECT_SAME_START(ours, theirs) \
  BASCULE_EXPECT_SAME(ours, theirs);            \
  static_assert(kOurs.ours == kTheirs.theirs)
BASCULE_EXPECT_SAME(size, size);
BASCULE_EXPECT_SAME_START(magic, magic);
BASCULE_EXPECT_SAME(version, version);
BASCULE_EXPECT_SAME_START(blocking, blocking);
BASCULE_EXPECT_SAME_START(cga_cluster_size, cgaClusterSize);
BASCULE_EXPECT_SAME_START(min_ctas, minCTAs);
BASCULE_EXPECT_SAME_START(max_ctas, maxCTAs);
BASCULE_EXPECT_SAME_START(net_name, netName);
BASCULE_EXPECT_SAME_START(split_share, splitShare);
BASCULE_EXPECT_SAME_START(traffic_class, trafficClass);
BASCULE_EXPECT_SAME_START(comm_name, commName);
BASCULE_EXPECT_SAME_START(collnet_enable, collnetEnable);
BASCULE_EXPECT_SAME_START(cta_policy, CTAPolicy);
BASCULE_EXPECT_SAME_START(shrink_share, shrinkShare);
BASCULE_EXPECT_SAME_START(nvls_ctas, nvlsCTAs);
static_assert(kOurs.size == sizeof(Config) && kOurs.version == NCCL_VERSION(2, 27, 0));

// The order and kinds of the arguments: dlsym() would not notice a change.
static_assert(std::is_same_v<decltype(ncclGetVersion), ncclResult_t(int*)>);
static_assert(std::is_same_v<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)>);
static_assert(
    std::is_same_v<decltype(ncclCommInitRankConfig), ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
static_assert(std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclBroadcast),
                             ncclResult_t(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclCommFinalize), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommDestroy), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(std::is_same_v<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(std::is_same_v<decltype(ncclGetLastError), const char*(ncclComm_t)>);
#if NCCL_VERSION_CODE >= 22807
static_assert(std::is_same_v<decltype(ncclCommRevoke), ncclResult_t(ncclComm_t, int)>);
#endif

TEST(NcclHeader, VersionsAreWrittenAsTheHeaderCountsThem) {
  EXPECT_EQ(version_text(NCCL_VERSION(2, 7, 8)), "2.7.8");
  EXPECT_EQ(version_text(NCCL_VERSION(2, 28, 9)), "2.28.9");
  EXPECT_EQ(version_text(NCCL_VERSION(3, 0, 1)), "3.0.1");
}

}  // namespace
}  // namespace bascule::inline v0::nccl
#endif
