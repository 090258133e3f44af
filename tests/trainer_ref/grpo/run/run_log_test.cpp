#include <bascule/trainer_ref/grpo/run/run_log.h>

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunLogTest : public ::testing::Test {
 protected:
  // The lines about completions that were cut.
  std::vector<std::string> warnings_of(std::int64_t step, double cut) {
    lines_.clear();
    StepMetrics metrics{.step = step, .cut = cut};
    EXPECT_THAT(log_.add(metrics), IsOk());
    std::erase_if(lines_, [](const std::string& line) { return line.find("--max-tokens") == std::string::npos; });
    return lines_;
  }

  const bascule::test::TempFolder folder_;
  std::vector<std::string> lines_;
  RunLog log_{{.folder = folder_.path(), .line = [this](std::string_view line) { lines_.emplace_back(line); }},
              nullptr};
};

TEST_F(RunLogTest, WarnsOnceIfEveryCompletionOfAStepWasCut) {
  ASSERT_THAT(log_.start(0, 9, {}), IsOk());
  EXPECT_THAT(warnings_of(0, kNoNumber), IsEmpty()) << "only evaluated";
  EXPECT_THAT(warnings_of(1, 0.99), IsEmpty());
  EXPECT_THAT(warnings_of(2, 1), ElementsAre(HasSubstr("step 2: --max-tokens cut off every completion")));
  EXPECT_THAT(warnings_of(3, 1), IsEmpty());
}

}  // namespace
}  // namespace bascule::ref
