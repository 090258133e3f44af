#include <bascule/bench/record.h>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "results.h"
#include "support/status.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

TEST(Record, RatioIsOfMedians) {
  const Record record = measured_record("send", {0.3, 0.1, 0.2}, {0.1, 0.1, 0.9});
  EXPECT_DOUBLE_EQ(record.ratio().value(), 2);
}

TEST(Record, TargetIsMetOrMissed) {
  Record record = measured_record("send", {0.3, 0.1, 0.2}, {0.1});
  EXPECT_EQ(record.met(), std::nullopt);
  record.target = {Goal::Of::kRatio, 2.0};
  EXPECT_EQ(record.met(), true);
  record.target = {Goal::Of::kRatio, 1.9};
  EXPECT_EQ(record.met(), false);
  record.target = {Goal::Of::kP99Seconds, 0.25};
  EXPECT_EQ(record.met(), false);
  record.target = {Goal::Of::kP99Seconds, 0.3};
  EXPECT_EQ(record.met(), true);
}

TEST(Record, WithoutABaselineThereIsNoRatio) {
  EXPECT_EQ(measured_record("send", {1}, {}).ratio(), std::nullopt);
  EXPECT_EQ(measured_record("send", {}, {1}).ratio(), std::nullopt);
}

TEST(Record, JsonIsWhatTheDesignSays) {
  Record record = measured_record("send", {0.2}, {0.1});
  record.stages["pack"] = {0.15};
  record.target = {Goal::Of::kRatio, 1.15};
  const nlohmann::json json = nlohmann::json::parse(to_json(results_with({record})));
  EXPECT_EQ(json.at("machine").at("cpu"), "a cpu");
  const nlohmann::json& found = json.at("records").at(0);
  EXPECT_EQ(found.at("scheme"), "shm");
  EXPECT_EQ(found.at("scenario"), "send");
  EXPECT_EQ(found.at("bytes"), 1 << 30);
  EXPECT_EQ(found.at("tensors"), 338);
  EXPECT_EQ(found.at("workers"), 2);
  EXPECT_EQ(found.at("device"), "cpu");
  for (const char* key : {"p50", "p90", "p99", "min"}) EXPECT_EQ(found.at("ours_seconds").at(key), 0.2) << key;
  EXPECT_EQ(found.at("baseline").at("name"), "threaded memcpy");
  EXPECT_EQ(found.at("baseline").at("seconds"), 0.1);
  EXPECT_EQ(found.at("ratio"), 2);
  EXPECT_EQ(found.at("stages").at("pack").at("p50"), 0.15);
  EXPECT_EQ(found.at("samples").at("ours_seconds").at(0), 0.2);
  EXPECT_EQ(found.at("met"), false);
}

TEST(Record, ReadsWhatItWrote) {
  Record record = measured_record("stall", {0.2, 0.3}, {0.1, 0.15});
  record.stages["pack"] = {0.1, 0.2};
  record.target = {Goal::Of::kP99Seconds, 1e-4};
  record.note = "a note";
  Record median = record;
  median.target = {Goal::Of::kP50Seconds, 0.25};
  Record skipped;
  skipped.scheme = "memmap";
  skipped.scenario = "durable";
  skipped.skipped = "not in this version";
  Results before = results_with({record, skipped, median});
  before.counts = {{.scheme = "shm", .what = "memory", .unit = "bytes", .found = 5, .at_most = 7},
                   {.scheme = "shm", .what = "allocations", .skipped = "no room"}};
  const absl::StatusOr<Results> after = results_from_json(to_json(before));
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(to_json(*after), to_json(before));
  EXPECT_EQ(after->records[0].ours_seconds, record.ours_seconds);
  EXPECT_EQ(after->records[0].met(), false);
  EXPECT_EQ(after->records[1].skipped, "not in this version");
  EXPECT_EQ(after->records[2].met(), true);
  EXPECT_EQ(after->counts[0].met(), true);
  EXPECT_EQ(after->counts[1].met(), std::nullopt);
}

TEST(Record, RefusesWhatItDidNotWrite) {
  EXPECT_THAT(results_from_json("{"), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  EXPECT_THAT(results_from_json("{\"machine\": {}}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("records")));
  EXPECT_THAT(results_from_json(R"({"machine": {}, "records": [{"scheme": 5}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("string")));
  EXPECT_THAT(results_from_json(R"({"machine": {}, "records": [{"scheme": "shm", "limit": {"name": "memcpy"}}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rename \"limit\" to \"baseline\"")));
  EXPECT_THAT(read_results("/nowhere/at-all.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/at-all.json")));
}

}  // namespace
}  // namespace bascule::bench
