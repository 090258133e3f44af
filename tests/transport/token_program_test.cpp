// The program bascule-token, and the files that it makes.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/status.h>
#include <bascule/transport/wire/token.h>

namespace bascule {
namespace {

using test::IsOk;
using testing::AllOf;
using testing::HasSubstr;

class TokenProgramTest : public testing::Test {
 protected:
  struct Ran {
    int exit_status = -1;
    std::string text;  // of both streams
  };
  static Ran run(const std::string& arguments) {
    Ran ran;
    FILE* const pipe = ::popen(cat(BASCULE_TOKEN_PROGRAM, " ", arguments, " 2>&1").c_str(), "r");
    char bytes[4096];
    while (const std::size_t count = std::fread(bytes, 1, sizeof(bytes), pipe)) ran.text.append(bytes, count);
    ran.exit_status = WEXITSTATUS(::pclose(pipe));
    return ran;
  }

  test::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "token";
};

TEST_F(TokenProgramTest, MakesAFileThatBothEndsTake) {
  const mode_t before = ::umask(0);
  const Ran made = run(file_.string());
  ::umask(before);
  EXPECT_EQ(made.exit_status, 0) << made.text;
  EXPECT_EQ(made.text, "") << "it stands in the file alone";
  struct stat status {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto token = Token::find(Endpoint::parse(cat("nccl://node1:80?token_file=", file_.string())).value());
  ASSERT_THAT(token, IsOk());
  EXPECT_THAT(std::string((*token)->secret()), testing::MatchesRegex("[0-9a-f]{64}"));
}

TEST_F(TokenProgramTest, LeavesAloneWhatIsThere) {
  std::ofstream(file_) << "something of somebody's\n";
  const Ran ran = run(file_.string());
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.text, HasSubstr("is there already and stays as it is"));
  std::ifstream file(file_);
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "something of somebody's");
  // A link does not lead it elsewhere either.
  std::filesystem::create_symlink(folder_.path() / "nowhere", folder_.path() / "link");
  EXPECT_EQ(run((folder_.path() / "link").string()).exit_status, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "nowhere"));
}

TEST_F(TokenProgramTest, PrintsOneWithoutAFileEachTimeAnother) {
  const Ran first = run(""), second = run("");
  EXPECT_EQ(first.exit_status, 0);
  EXPECT_THAT(first.text, testing::MatchesRegex("[0-9a-f]{64}\n"));
  EXPECT_NE(first.text, second.text);
}

TEST_F(TokenProgramTest, SaysWhatIsWrong) {
  EXPECT_EQ(run("> /dev/full").exit_status, 1);
  EXPECT_EQ(run("/no/such/folder/token").exit_status, 1);
  const Ran flag = run("--length 8");
  EXPECT_EQ(flag.exit_status, 2);
  EXPECT_THAT(flag.text, AllOf(HasSubstr("unknown flag"), HasSubstr("--length"), HasSubstr("bascule-token ~/")));
  EXPECT_EQ(run("a b").exit_status, 2);
  const Ran help = run("--help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.text, AllOf(HasSubstr("usage: bascule-token"), HasSubstr("exit status")));
  EXPECT_EQ(run("-h").text, help.text);
}

}  // namespace
}  // namespace bascule
