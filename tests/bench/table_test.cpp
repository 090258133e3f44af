#include <bascule/bench/table.h>

#include <gmock/gmock.h>

#include "results.h"

namespace bascule::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Table, ColumnsLineUpByCharacters) {
  EXPECT_EQ(markdown_table({{"a", "wide"}, {"größe", "1"}, {"x", "≤ 22222"}}),
            "| a     | wide    |\n"
            "| ----- | ------- |\n"
            "| größe | 1       |\n"
            "| x     | ≤ 22222 |\n");
}

TEST(Table, LeavesOutColumnsWithoutACell) {
  EXPECT_EQ(markdown_table({{"one", "two", "three"}, {"1", "", "3"}}),
            "| one | three |\n"
            "| --- | ----- |\n"
            "| 1   | 3     |\n");
}

TEST(Table, ShowsATargetAndWhetherItIsMet) {
  Record good = measured_record("send", {0.1}, {0.1}), bad = measured_record("send_cast", {0.2}, {0.1});
  good.target = bad.target = {Goal::Of::kRatio, 1.15};
  const std::string text = shown(results_with({good, bad}));
  EXPECT_THAT(text, testing::ContainsRegex("send .*100 ms.* 1.00 .*≤ 1.15 \\| met"));
  EXPECT_THAT(text, testing::ContainsRegex("send_cast .*200 ms.* 2.00 .*≤ 1.15 \\| missed"));
}

TEST(Table, SaysWhyARowWasSkippedAndWhatMustBeKnownOfIt) {
  Record skipped = measured_record("durable", {}, {}), noted = measured_record("busy", {1}, {1});
  skipped.skipped = "durable: not in this version";
  noted.note = "5 busy threads on 2 cores: no target";
  const std::string text = shown(results_with({skipped, noted}));
  EXPECT_THAT(text, HasSubstr("skipped |"));
  EXPECT_THAT(text, HasSubstr("- shm durable: skipped: durable: not in this version\n"));
  EXPECT_THAT(text, HasSubstr("- shm busy: 5 busy threads on 2 cores: no target\n"));
}

TEST(Table, TellsAFailureFromWhatWasSkipped) {
  Record failed = measured_record("send", {}, {});
  failed.skipped = "failed: worker a serves other bytes";
  const std::string text = shown(results_with({failed}));
  EXPECT_THAT(text, HasSubstr("failed |"));
  EXPECT_THAT(text, HasSubstr("- shm send: failed: worker a serves other bytes\n"));
}

TEST(Table, ShowsCountsInTheirUnits) {
  Results results = results_with({});
  results.counts = {{.scheme = "shm", .what = "memory", .unit = "bytes", .found = 3 << 20, .at_most = 16 << 20},
                    {.scheme = "shm", .what = "descriptors gained", .unit = "descriptors", .found = 2, .at_most = 0}};
  const std::string text = shown(results);
  EXPECT_THAT(text, testing::ContainsRegex("memory .*3.00 MiB .*≤ 16.0 MiB \\| met"));
  EXPECT_THAT(text, testing::ContainsRegex("descriptors gained .*2 descriptors .*≤ 0 .*\\| missed"));
  EXPECT_THAT(text, Not(HasSubstr("scenario")));  // no table without rows
}

}  // namespace
}  // namespace bascule::bench
