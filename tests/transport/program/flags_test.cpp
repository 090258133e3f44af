#include <bascule/transport/program/flags.h>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "support/temp_folder.h"
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(int, worker_threads, 3, "how many threads");
ABSL_FLAG(double, rate, 0.5, "a rate");
ABSL_FLAG(bool, verbose, false, "say more");
ABSL_FLAG(std::string, model, "", "a folder");
ABSL_FLAG(std::vector<std::string>, urls, {}, "addresses");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(2), "how long");
ABSL_FLAG(bascule::ByteSize, cache_bytes, bascule::ByteSize{256 << 20}, "how much");

namespace bascule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Flags : public ::testing::Test {
 protected:
  absl::StatusOr<ParsedFlags> parse(std::vector<const char*> words) { return parse_flags(words); }
  std::string refusal(std::vector<const char*> words) { return std::string(parse(words).status().message()); }

  std::string config(const std::string& text, const std::string& ending = "") {
    const std::filesystem::path file = folder_.path() / (std::to_string(files_++) + ending);
    std::ofstream(file) << text;
    return "--config=" + file.string();
  }

 private:
  const test::TempFolder folder_;
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
  EXPECT_THAT(refusal({"folder"}), HasSubstr("'folder' is not a flag"));
  EXPECT_THAT(refusal({"--cache-bytes=12XB"}), HasSubstr("expected SIZE, such as"));
}

TEST_F(Flags, SizesHaveUnits) {
  ASSERT_TRUE(parse({"--cache-bytes=3MiB"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_cache_bytes).bytes, 3 << 20);
  EXPECT_THAT(refusal({"--cache-bytes=9223372036854775807GiB"}), HasSubstr("expected SIZE"));
}

TEST_F(Flags, HelpListsEveryFlagWithItsDefault) {
  ASSERT_TRUE(parse({"--help"})->help);
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
  EXPECT_THAT(refusal({config("[1]").c_str()}),
              HasSubstr("expected an object of flags, such as {\"threads\": 2}, found array"));
  EXPECT_THAT(refusal({config("{").c_str()}), HasSubstr("is not valid JSON"));
  EXPECT_THAT(refusal({config("rate: 2").c_str()}), HasSubstr("YAML has a name that ends in .yaml or .yml"));
  EXPECT_THAT(refusal({"--config=/nowhere/flags.json"}),
              HasSubstr("/nowhere/flags.json: no such file; give a file of flags"));
}

TEST_F(Flags, ConfigMayBeYaml) {
  const std::string text = R"(
worker-threads: 5
rate: 2e-3
verbose: true
urls: [a, "b"]
patience: 3s
cache_bytes: 1KiB
)";
  for (const std::string ending : {".yaml", ".yml"}) {
    const absl::FlagSaver one_at_a_time;
    ASSERT_EQ(parse({config(text, ending).c_str()}).status(), absl::OkStatus());
    EXPECT_EQ(absl::GetFlag(FLAGS_worker_threads), 5);
    EXPECT_EQ(absl::GetFlag(FLAGS_rate), 0.002);
    EXPECT_TRUE(absl::GetFlag(FLAGS_verbose));
    EXPECT_THAT(absl::GetFlag(FLAGS_urls), ElementsAre("a", "b"));
    EXPECT_EQ(absl::GetFlag(FLAGS_patience), absl::Seconds(3));
    EXPECT_EQ(absl::GetFlag(FLAGS_cache_bytes).bytes, 1024);
  }
  EXPECT_THAT(refusal({config("verbose: yes", ".yaml").c_str()}),
              HasSubstr(R"("verbose": expected BOOL, found "yes")"));
  EXPECT_THAT(refusal({config("worker-threads: '5'", ".yaml").c_str()}), HasSubstr("expected INTEGER, found \"5\""));
  EXPECT_THAT(refusal({config("worker-threads:", ".yaml").c_str()}), HasSubstr("expected INTEGER, found null"));
  EXPECT_THAT(refusal({config("", ".yml").c_str()}), HasSubstr("expected an object of flags"));
  EXPECT_THAT(refusal({config("rate: 2\nrate: 3", ".yml").c_str()}),
              HasSubstr(".yml, line 2: the key 'rate' stands twice"));
  EXPECT_THAT(refusal({config("#" + std::string(1 << 20, ' '), ".yml").c_str()}), HasSubstr("--config="));
}

TEST(FlagChecks, KeepTheFirstRefusalAndSayWhatWouldDo) {
  FlagChecks checks;
  checks.at_least("threads", 1, 0).between("port", 70000, 0, 65535).one_of("dtype", "f8", {"f32", "bf16"});
  EXPECT_EQ(checks.status().message(), "--port=70000: give a value from 0 to 65535, as --port=65535");
  EXPECT_EQ(FlagChecks().one_of("dtype", "f8", {"f32", "bf16"}).status().message(),
            "--dtype=f8: give one of f32, bf16, as --dtype=f32");
}

TEST(FlagChecks, RefuseWhatIsNoNumberOrHasNoEnd) {
  const double infinite = std::numeric_limits<double>::infinity(), none = std::nan("");
  for (const double value : {infinite, -infinite, none, -1.0}) {
    EXPECT_THAT(FlagChecks().at_least("rate", value, 0.0).status().message(), HasSubstr("give 0 or more, as --rate=1"));
    EXPECT_THAT(FlagChecks().between("rate", value, 0.0, 9.0).status().message(),
                HasSubstr("from 0 to 9, as --rate=9"));
    EXPECT_THAT(FlagChecks().above_zero("rate", value, 0.5, 9).status().message(),
                HasSubstr("above 0, at most 9, as --rate=0.5"));
  }
  for (const absl::Duration time : {absl::InfiniteDuration(), -absl::Seconds(1), absl::ZeroDuration()})
    EXPECT_THAT(FlagChecks().positive_time("wait", time, "60s").status().message(),
                HasSubstr("give a finite time above 0, as --wait=60s"));
  EXPECT_TRUE(FlagChecks().at_least("rate", 0.0, 0.0).positive_time("wait", absl::Seconds(1), "60s").status().ok());
}

TEST(FlagChecks, ARangeMayHaveAnExampleOfItsOwn) {
  EXPECT_EQ(FlagChecks().between("beta", 1e39, 0.0, 1e6, 0.04).status().message(),
            "--beta=1e+39: give a value from 0 to 1e+06, as --beta=0.04");
  EXPECT_FALSE(FlagChecks().above_zero("rate", 9.5, 0.5, 9).status().ok());
  EXPECT_TRUE(FlagChecks().above_zero("rate", 9, 0.5, 9).status().ok());
}

TEST(OfFlag, NamesTheFlagOfWhatItNames) {
  const absl::Status missing =
      of_flag(absl::NotFoundError("/x: no such folder"), "model", "/x", "give one, as --model=m");
  EXPECT_EQ(missing.message(), "--model=/x: no such folder; give one, as --model=m") << "the folder stands there once";
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(of_flag(absl::UnimplementedError("/x/config.json: too new"), "model", "/x", "…").message(),
            "--model=/x: /x/config.json: too new; …");
  EXPECT_EQ(of_flag(absl::ResourceExhaustedError("/x: no memory"), "model", "/x", "…").code(),
            absl::StatusCode::kResourceExhausted)
      << "no other value would do better";
  EXPECT_TRUE(of_flag(absl::OkStatus(), "model", "/x", "…").ok());
}

TEST_F(Flags, EveryRefusalGivesAnExample) {
  for (const char* word : {"--worker-threads=many", "--model", "folder", "--verbose=perhaps"})
    EXPECT_THAT(refusal({word}), HasSubstr(", as --")) << word;
}

TEST_F(Flags, ShortHelpIsHelp) { EXPECT_TRUE(parse({"-h"})->help); }

}  // namespace
}  // namespace bascule
