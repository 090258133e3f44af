#include <bascule/bench/memory_need.h>

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

TEST(MemoryNeed, FitsWhereASixteenthIsLeft) {
  EXPECT_THAT(check_fits({{.what = "model", .bytes = 15 * kGibibyte}}, 16 * kGibibyte), IsOk());
  EXPECT_THAT(check_fits({{.what = "model", .bytes = 15 * kGibibyte + 1}}, 16 * kGibibyte),
              StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
}

TEST(MemoryNeed, SaysTheArithmetic) {
  EXPECT_THAT(
      check_fits({{.what = "model", .bytes = 4 * kGibibyte}, {.what = "slots", .count = 2, .bytes = 4 * kGibibyte}},
                 8 * kGibibyte),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("1 model of 4.00 GiB + 2 slots of 4.00 GiB = 12.0 GiB"),
                     HasSubstr("8.00 GiB are available, of which 512 MiB are kept free"))));
}

TEST(MemoryNeed, ShowsThreeDigits) {
  EXPECT_EQ(shown_bytes(0), "0 B");
  EXPECT_EQ(shown_bytes(1023), "1023 B");
  EXPECT_EQ(shown_bytes(1'000'000), "977 KiB");
  EXPECT_EQ(shown_bytes(1.5 * (1 << 20)), "1.50 MiB");
  EXPECT_EQ(shown_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(shown_seconds(0.0000123), "12.3 us");
  EXPECT_EQ(shown_seconds(0.0456), "45.6 ms");
  EXPECT_EQ(shown_seconds(2), "2.00 s");
}

}  // namespace
}  // namespace bascule::bench
