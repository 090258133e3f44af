#include "trainer_ref/program/flags.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "trainer_ref/program/byte_size.h"
#include "trainer_ref/program/checks.h"

ABSL_FLAG(int, worker_threads, 3, "how many threads");
ABSL_FLAG(double, rate, 0.5, "a rate");
ABSL_FLAG(bool, verbose, false, "say more");
ABSL_FLAG(std::string, model, "", "a folder");
ABSL_FLAG(std::vector<std::string>, urls, {}, "addresses");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(2), "how long");
ABSL_FLAG(bascule::ref::ByteSize, cache_bytes, bascule::ref::ByteSize{256 << 20}, "how much");

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Flags : public ::testing::Test {
 protected:
  absl::StatusOr<ParsedFlags> parse(std::vector<const char*> words) { return parse_flags(words); }
  std::string refusal(std::vector<const char*> words) { return std::string(parse(words).status().message()); }

  std::string config(const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) /
                                       ("flags_" + std::to_string(::getpid()) + "_" + std::to_string(files_++));
    std::ofstream(file) << text;
    return "--config=" + file.string();
  }

 private:
  absl::FlagSaver saver_;
  int files_ = 0;
};

TEST_F(Flags, TakesValuesAfterEqualsAndAsTheNextWord) {
  ASSERT_TRUE(parse({"--worker-threads=7", "--model", "folder", "--rate", "-1.5"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_worker_threads), 7);
  EXPECT_EQ(absl::GetFlag(FLAGS_model), "folder");
  EXPECT_EQ(absl::GetFlag(FLAGS_rate), -1.5);
}

TEST_F(Flags, TakesTheNameWithUnderscoresToo) {
  ASSERT_TRUE(parse({"--worker_threads=8"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_worker_threads), 8);
}

TEST_F(Flags, BoolsNeedNoValueAndCanBeNegated) {
  ASSERT_TRUE(parse({"--verbose"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
  ASSERT_TRUE(parse({"--no-verbose"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_verbose));
  ASSERT_TRUE(parse({"--verbose=true"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
}

TEST_F(Flags, RefusesAnUnknownFlagAndNamesTheNearest) {
  EXPECT_THAT(refusal({"--worker-thread=1"}),
              HasSubstr("unknown flag --worker-thread; did you mean --worker-threads?"));
  EXPECT_THAT(refusal({"--flagfile=x"}), HasSubstr("unknown flag --flagfile"));
}

TEST_F(Flags, RefusesWhatIsIllTypedMissingOrNoFlag) {
  EXPECT_THAT(refusal({"--worker-threads=many"}), HasSubstr("--worker-threads=many: expected INTEGER"));
  EXPECT_THAT(refusal({"--model"}), HasSubstr("--model needs a value"));
  EXPECT_THAT(refusal({"--model", "--verbose"}), HasSubstr("--model needs a value"));
  EXPECT_THAT(refusal({"folder"}), HasSubstr("'folder' is no flag"));
  EXPECT_THAT(refusal({"--cache-bytes=12XB"}), HasSubstr("expected SIZE, such as"));
}

TEST_F(Flags, SizesHaveUnits) {
  ASSERT_TRUE(parse({"--cache-bytes=3MiB"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_cache_bytes).bytes, 3 << 20);
  EXPECT_THAT(refusal({"--cache-bytes=9223372036854775807GiB"}), HasSubstr("expected SIZE"));
}

TEST_F(Flags, HelpListsEveryFlagWithItsDefault) {
  ASSERT_EQ(*parse({"--help"}), ParsedFlags::kHelp);
  const std::string text = help_text({.name = "tool", .summary = "does things"});
  EXPECT_THAT(text, HasSubstr("tool: does things"));
  EXPECT_THAT(text, HasSubstr("--worker-threads=INTEGER  (default 3)\n      how many threads"));
  EXPECT_THAT(text, HasSubstr("--cache-bytes=SIZE  (default 256MiB)"));
  EXPECT_THAT(text, HasSubstr("--config=FILE"));
}

TEST_F(Flags, ConfigSetsFlagsAndTheCommandLineWins) {
  const std::string file =
      config(R"({"worker-threads": 5, "rate": 2, "verbose": true, "urls": ["a", "b"], "patience": "3s",
                 "cache_bytes": "1KiB", "model": "m"})");
  ASSERT_EQ(parse({"--worker-threads=6", file.c_str()}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_worker_threads), 6);
  EXPECT_EQ(absl::GetFlag(FLAGS_rate), 2);
  EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
  EXPECT_THAT(absl::GetFlag(FLAGS_urls), ElementsAre("a", "b"));
  EXPECT_EQ(absl::GetFlag(FLAGS_patience), absl::Seconds(3));
  EXPECT_EQ(absl::GetFlag(FLAGS_cache_bytes).bytes, 1024);
}

TEST_F(Flags, ConfigRefusesUnknownKeysAndWrongTypes) {
  EXPECT_THAT(refusal({config(R"({"worker-treads": 5})").c_str()}), HasSubstr("did you mean --worker-threads?"));
  EXPECT_THAT(refusal({config(R"({"worker-threads": "5"})").c_str()}),
              HasSubstr(R"("worker-threads": expected INTEGER, found "5")"));
  EXPECT_THAT(refusal({config(R"({"worker-threads": 5.5})").c_str()}), HasSubstr("expected INTEGER"));
  EXPECT_THAT(refusal({config(R"({"verbose": 1})").c_str()}), HasSubstr("expected BOOL"));
  EXPECT_THAT(refusal({config(R"({"urls": [1]})").c_str()}), HasSubstr("list of strings"));
  EXPECT_THAT(refusal({config("[1]").c_str()}), HasSubstr("expected one JSON object of flags, found array"));
  EXPECT_THAT(refusal({config("{").c_str()}), HasSubstr("not JSON"));
  EXPECT_THAT(refusal({"--config=/nowhere/flags.json"}), HasSubstr("cannot be read"));
}

TEST(FlagChecks, KeepTheFirstRefusalAndSayWhatWouldDo) {
  FlagChecks checks;
  checks.at_least("threads", 1, 0).between("port", 70000, 0, 65535).one_of("dtype", "f8", {"f32", "bf16"});
  EXPECT_EQ(checks.status().message(), "--port=70000: give a value from 0 to 65535");
  EXPECT_EQ(FlagChecks().one_of("dtype", "f8", {"f32", "bf16"}).status().message(),
            "--dtype=f8: give one of f32, bf16");
}

}  // namespace
}  // namespace bascule::ref
