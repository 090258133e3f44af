#include <bascule/bench/compare.h>

#include <gmock/gmock.h>

#include "results.h"
#include "support/status.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Compare, SaysWhatBecameFasterAndWhatSlower) {
  const Results before =
      results_with({measured_record("send", {1.0, 1.1, 1.2}, {1}), measured_record("join", {1.0, 1.1, 1.2}, {1}),
                    measured_record("digest_on", {1.0, 1.1, 1.2}, {1})});
  const Results after =
      results_with({measured_record("send", {0.5, 0.55, 0.6}, {1}), measured_record("join", {2.0, 2.2, 2.4}, {1}),
                    measured_record("digest_on", {0.9, 1.1, 1.3}, {1})});
  const absl::StatusOr<std::string> text = compare(before, after, 1);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text, ContainsRegex("send .*1.10 s .*550 ms .* 0.50 .* faster"));
  EXPECT_THAT(*text, ContainsRegex("join .* 2.00 .* slower"));
  EXPECT_THAT(*text, ContainsRegex("digest_on .* 1.00 .* no visible difference"));
}

TEST(Compare, RefusesFiguresOfTwoMachines) {
  const Results before = results_with({measured_record("send", {1}, {1})});
  Results after = before;
  after.machine.facts["cores"] = "64";
  EXPECT_THAT(compare(before, after, 1), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cores: 2 and 64")));
}

TEST(Compare, NamesRecordsWithoutAPartner) {
  Record larger = measured_record("send", {1}, {1}), skipped = measured_record("durable", {}, {});
  larger.bytes *= 2;
  skipped.skipped = "not here";
  const absl::StatusOr<std::string> text =
      compare(results_with({measured_record("send", {1}, {1}), skipped}), results_with({larger, skipped}), 1);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text, AllOf(HasSubstr("only in the first file: shm send"),
                           HasSubstr("only in the second file: shm send"), Not(HasSubstr("durable"))));
}

TEST(Compare, PutsASchemeThatIsNewBesideEachOfTheOthers) {
  Record peer = measured_record("send", {2.0}, {1}), memmap = measured_record("send", {1.0}, {1});
  peer.scheme = "torch.save";
  memmap.scheme = "memmap";
  const absl::StatusOr<std::string> text =
      compare(results_with({measured_record("send", {0.5}, {1}), memmap}), results_with({peer}), 1);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text, AllOf(ContainsRegex("shm → torch.save .* 4.00 "), ContainsRegex("memmap → torch.save .* 2.00 ")));
}

}  // namespace
}  // namespace bascule::bench
