// One config file and one environment for two programs: this one, "cook", and its companion "waiter".
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "support/environment.h"
#include "support/temp_folder.h"
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/flags.h>

ABSL_FLAG(int, pots, 1, "how many");
ABSL_FLAG(int, hands, 2, "which the waiter also has");
ABSL_FLAG(bool, salt, true, "or none");
ABSL_FLAG(std::optional<int>, guests, std::nullopt, "or who comes");
ABSL_FLAG(std::vector<std::string>, herbs, {}, "which");
ABSL_FLAG(bascule::ByteSize, stock, bascule::ByteSize{1}, "how much");

namespace bascule {
namespace {

using test::Environment;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class SharedFlags : public ::testing::Test {
 protected:
  absl::StatusOr<ParsedFlags> parse(std::vector<const char*> words) { return parse_flags(words, cook_); }
  std::string refusal(std::vector<const char*> words) {
    const absl::FlagSaver one_at_a_time;
    return std::string(parse(std::move(words)).status().message());
  }
  std::string file(const std::string& text) {
    const std::filesystem::path path = folder_.path() / ("config_" + std::to_string(files_++) + ".json");
    std::ofstream(path) << text;
    return path.string();
  }
  std::string config(const std::string& text) { return "--config=" + file(text); }

  const ProgramInfo cook_{.name = "cook",
                          .summary = "cooks",
                          .section = "cook",
                          .companions = {{.section = "waiter", .flags = {"hands", "max-plates"}}}};

 private:
  absl::FlagSaver saver_;
  test::TempFolder folder_;
  int files_ = 0;
};

TEST_F(SharedFlags, AFileMayHoldFlagsOfBothPrograms) {
  const std::string both = config(R"({"pots": 3, "max-plates": 8, "max_plates": 9})");
  ASSERT_EQ(parse({both.c_str()}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 3);
}

TEST_F(SharedFlags, AnObjectOfAFileIsOneProgramsAloneAndWinsOverWhatStandsBesideIt) {
  const std::string both =
      config(R"({"cook": {"hands": 4}, "hands": 3, "pots": 5, "waiter": {"hands": 7, "max-plates": 8}})");
  ASSERT_EQ(parse({both.c_str()}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_hands), 4);
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 5);
}

TEST_F(SharedFlags, AFlagOfNeitherProgramIsRefusedWithTheNearestOfBoth) {
  EXPECT_THAT(refusal({config(R"({"max-plate": 8})").c_str()}),
              HasSubstr("unknown flag \"max-plate\"; did you mean max-plates?"));
  EXPECT_THAT(refusal({config(R"({"potts": 8})").c_str()}), HasSubstr("did you mean pots?"));
  EXPECT_THAT(refusal({config(R"({"waiter": {"plates-max": 8, "pots": 1}})").c_str()}),
              HasSubstr("\"waiter\": unknown flag \"plates-max\""));
  EXPECT_THAT(refusal({config(R"({"waiter": {"pots": 1}})").c_str()}), HasSubstr("\"waiter\": unknown flag \"pots\""));
  EXPECT_THAT(refusal({config(R"({"cook": {"max-plates": 1}})").c_str()}), HasSubstr("unknown flag --max-plates"));
  EXPECT_THAT(refusal({config(R"({"cook": 7})").c_str()}), HasSubstr("\"cook\": expected an object of flags, found 7"));
  EXPECT_THAT(refusal({config(R"({"waiter": [1]})").c_str()}), HasSubstr("expected an object of flags"));
  EXPECT_THAT(refusal({config(R"({"cook": {"pots": "x"}})").c_str()}), HasSubstr("expected INTEGER, found \"x\""));
  EXPECT_THAT(refusal({"--max-plates=3"}), HasSubstr("unknown flag --max-plates"))
      << "the command line is one program's";
}

TEST_F(SharedFlags, TheCommandLineWinsOverTheEnvironmentAndThatOverFiles) {
  const std::string told = config(R"({"pots": 3, "hands": 3, "cook": {"salt": false, "stock": "3KiB"}})");
  const Environment pots("BASCULE_POTS", "5"), stock("BASCULE_STOCK", "5KiB"), herbs("BASCULE_HERBS", "dill,basil");
  ASSERT_EQ(parse({"--pots=6", told.c_str()}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 6);
  EXPECT_EQ(absl::GetFlag(FLAGS_stock).bytes, 5120) << "also over the program's own object";
  EXPECT_THAT(absl::GetFlag(FLAGS_herbs), ElementsAre("dill", "basil"));
  EXPECT_EQ(absl::GetFlag(FLAGS_hands), 3);
  EXPECT_FALSE(absl::GetFlag(FLAGS_salt));
}

TEST_F(SharedFlags, AFlagThatMayBeLeftOutIsOfItsTypeAllTheSame) {
  EXPECT_THAT(refusal({config(R"({"guests": "4"})").c_str()}), HasSubstr("\"guests\": expected INTEGER, found \"4\""));
  ASSERT_EQ(parse({config(R"({"guests": 4})").c_str()}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_guests), 4);
}

TEST_F(SharedFlags, AnEmptyVariableCountsAsNotSet) {
  const Environment pots("BASCULE_POTS", "");
  ASSERT_EQ(parse({}).status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 1);
}

TEST_F(SharedFlags, AVariableThatIsIllTypedIsRefusedByItsName) {
  const Environment pots("BASCULE_POTS", "many");
  EXPECT_EQ(refusal({}), "BASCULE_POTS: --pots=many: expected INTEGER, as --pots=1");
}

TEST_F(SharedFlags, AVariableThatNothingReadsIsToldWithTheNearest) {
  const Environment typo("BASCULE_MAX_PLATE", "5"), strange("BASCULE_QQQQQQQQ", "5"), other("BASCULE_MAX_PLATES", "x"),
      token("BASCULE_TOKEN", "of the library"), key("BASCULE_API_KEY", "of the engine's server"),
      apply("BASCULE_APPLY", "of vLLM's plugin"), alien("BASCULAR", "1");
  const auto parsed = parse({});
  ASSERT_EQ(parsed.status(), absl::OkStatus());
  EXPECT_THAT(parsed->warnings,
              ::testing::UnorderedElementsAre(
                  "the environment's BASCULE_MAX_PLATE names no flag; did you mean BASCULE_MAX_PLATES?",
                  "the environment's BASCULE_QQQQQQQQ names no flag"));
}

TEST_F(SharedFlags, AVariableMayNameAFileWhichFilesOfTheCommandLineWinOver) {
  const std::string named = file(R"({"pots": 3, "hands": 3})"), given = file(R"({"pots": 4})");
  const Environment variable("BASCULE_CONFIG", named.c_str());
  const auto parsed = parse({"--config", given.c_str()});
  ASSERT_EQ(parsed.status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 4);
  EXPECT_EQ(absl::GetFlag(FLAGS_hands), 3);
  EXPECT_THAT(parsed->config_files, ElementsAre(named, given));
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST_F(SharedFlags, HelpTellsOfFilesAndVariables) {
  EXPECT_THAT(help_text(cook_), AllOf(HasSubstr("\"cook\": {…} and \"waiter\": {…}"), HasSubstr("BASCULE_CONFIG"),
                                      HasSubstr("BASCULE_MAX_TOKENS")));
}

// bascule-bench has a different --sync: the pair's setting is not for it.
TEST_F(SharedFlags, AProgramWithoutACompanionReadsNoEnvironment) {
  const Environment pots("BASCULE_POTS", "5"), typo("BASCULE_POT", "5"), config("BASCULE_CONFIG", "/nowhere");
  const auto parsed = parse_flags({}, {.name = "cook", .summary = "cooks"});
  ASSERT_EQ(parsed.status(), absl::OkStatus());
  EXPECT_EQ(absl::GetFlag(FLAGS_pots), 1);
  EXPECT_THAT(parsed->warnings, IsEmpty());
  EXPECT_THAT(help_text({.name = "cook", .summary = "cooks"}), Not(HasSubstr("BASCULE_")));
  EXPECT_THAT(std::string(parse_flags(std::vector<const char*>{"--potz=1"}, {}).status().message()),
              StartsWith("unknown flag --potz"));
}

}  // namespace
}  // namespace bascule
