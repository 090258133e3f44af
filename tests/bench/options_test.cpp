#include <bascule/bench/options.h>

#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

// The options that parse_sync() adds unless given: a busy machine is no reason to evict a worker.
constexpr const char* kPatience = "timeout=2m&flip_timeout=1m&suspect_after=1m";

TEST(Sync, ASchemeAloneTakesTheFolderOfTheRun) {
  const absl::StatusOr<Sync> sync = parse_sync("shm");
  ASSERT_THAT(sync, IsOk());
  EXPECT_EQ(sync->folder, "");
  EXPECT_EQ(sync->endpoint("/run/1", ""), cat("shm:///run/1?", kPatience));
  EXPECT_EQ(sync->endpoint("/run/1", "digest=off"), cat("shm:///run/1?", kPatience, "&digest=off"));
}

TEST(Sync, AnEndpointGivesFolderAndOptions) {
  const absl::StatusOr<Sync> sync = parse_sync("memmap:///data/slots?digest=always&timeout=9s");
  ASSERT_THAT(sync, IsOk());
  EXPECT_EQ(sync->scheme, "memmap");
  EXPECT_EQ(sync->folder, "/data/slots");
  const std::string rest = "timeout=9s&flip_timeout=1m&suspect_after=1m";
  EXPECT_EQ(sync->endpoint("/data/slots/1", ""), cat("memmap:///data/slots/1?digest=always&", rest));
  EXPECT_EQ(sync->endpoint("/data/slots/1", "digest=off"), cat("memmap:///data/slots/1?", rest, "&digest=off"));
}

TEST(Sync, OptionsMayStandBehindASchemeAlone) {
  const absl::StatusOr<Sync> sync = parse_sync("shm?digest=off");
  ASSERT_THAT(sync, IsOk());
  EXPECT_EQ(sync->scheme, "shm");
  EXPECT_EQ(sync->endpoint("/run/1", ""), cat("shm:///run/1?digest=off&", kPatience));
}

TEST(Sync, RefusesWhatMakesNoSense) {
  EXPECT_THAT(parse_sync(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("give a scheme")));
  EXPECT_THAT(parse_sync("shm://host"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("absolute folder, as shm:///tmp")));
  EXPECT_THAT(parse_sync("shm?wire_dtype=f16"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("send_cast")));
}

TEST(ParseDevice, KnowsTheHostAndGpusByNumber) {
  EXPECT_EQ(*parse_device("cpu"), kHost);
  EXPECT_EQ(*parse_device("cuda"), 0);
  EXPECT_EQ(*parse_device("cuda:3"), 3);
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x"})
    EXPECT_THAT(parse_device(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected cpu or cuda:N, as cuda:0")))
        << text;
}

TEST(ParseCounts, TakesOneSeveralOrARangeThatDoubles) {
  EXPECT_THAT(*parse_counts("64"), ElementsAre(64));
  EXPECT_THAT(*parse_counts("256,64,64"), ElementsAre(64, 256));
  EXPECT_THAT(*parse_counts("8..64"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(*parse_counts("48..100"), ElementsAre(48, 96, 100));
  EXPECT_THAT(*parse_counts("8..8"), ElementsAre(8));
  for (const char* text : {"", "x", "-1", "8,", "8..", "..8", "9..8", "0..8", "8...9", "1e3", "8 ,9"})
    EXPECT_THAT(parse_counts(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as 64,256 or 8..1024")))
        << text;
}

TEST(JoinCompared, TwoFilesBecomeOneValue) {
  EXPECT_THAT(join_compared({"bench", "--compare", "a.json", "b.json", "--seed", "2"}),
              ElementsAre("bench", "--compare", "a.json,b.json", "--seed", "2"));
  EXPECT_THAT(join_compared({"bench", "--compare", "a.json,b.json"}),
              ElementsAre("bench", "--compare", "a.json,b.json"));
  EXPECT_THAT(join_compared({"bench", "--compare", "a.json", "--seed"}),
              ElementsAre("bench", "--compare", "a.json", "--seed"));
}

}  // namespace
}  // namespace bascule::bench
