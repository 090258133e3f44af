#include <bascule/sender/packer.h>

#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/schemes/registry.h>
#include <bascule/sender/pack_pace.h>
#include <bascule/transport/device.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

const Scheme kOnHost = {.name = "on-host", .on_device = false, .make_sender = {}, .make_receiver = {}};
const Scheme kOnDevice = {.name = "on-device", .on_device = true, .make_sender = {}, .make_receiver = {}};

TEST(Packer, OfTheHostPacksAtOnce) {
  kernels::ThreadPool pool(1);
  const auto packer = Packer::choose(kOnHost, kHost, pool);
  ASSERT_THAT(packer, IsOk());
  EXPECT_FALSE((*packer)->enqueues());
}

TEST(Packer, OfTensorsOnTheHostRefusesSlotsOnADeviceAndNamesSchemesThatWouldDo) {
  kernels::ThreadPool pool(1);
  EXPECT_THAT(Packer::choose(kOnDevice, kHost, pool).status(),
              StatusIs(StatusCode::kUnimplemented, AllOf(HasSubstr("on-device"), HasSubstr("host memory"),
                                                         HasSubstr(names_of_schemes(/*on_device=*/false)))));
}

TEST(Packer, OfADeviceThatIsNotThereSaysWhyWhereverTheSlotsLie) {
  kernels::ThreadPool pool(1);
  for (const Scheme* scheme : {&kOnHost, &kOnDevice}) {
    const absl::Status refused = Packer::choose(*scheme, 99, pool).status();
    EXPECT_EQ(refused.code(), why_no_cuda().ok() ? StatusCode::kUnavailable : StatusCode::kUnimplemented) << refused;
  }
}

TEST(PackPace, TakesAThreadAwayWhileTheCopiesEndLate) {
  PackPace pace(16);
  EXPECT_EQ(pace.threads(), 16);
  pace.took(50e-3, 20e-3);
  EXPECT_EQ(pace.threads(), 15);
  for (int i = 0; i < 20; ++i) pace.took(50e-3, 20e-3);
  EXPECT_EQ(pace.threads(), 8);
  pace.took(50e-3, 3e-3);
  EXPECT_EQ(pace.threads(), 8) << "both end at about the same time";
  pace.took(50e-3, 0.5e-3);
  EXPECT_EQ(pace.threads(), 9) << "the copies wait for the pack";
  for (int i = 0; i < 20; ++i) pace.took(50e-3, 0);
  EXPECT_EQ(pace.threads(), 16);
}

TEST(PackPace, ChangesNothingForFewThreadsOrShortPacks) {
  for (const int threads : {1, 2, 8}) {
    PackPace pace(threads);
    pace.took(1, 1);
    EXPECT_EQ(pace.threads(), threads);
  }
  PackPace pace(16);
  pace.took(4e-3, 4e-3);
  EXPECT_EQ(pace.threads(), 16);
}

}  // namespace
}  // namespace bascule
