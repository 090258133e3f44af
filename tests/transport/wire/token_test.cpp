#include <bascule/transport/wire/token.h>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "support/environment.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::Environment;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TokenTest : public testing::Test {
 protected:
  void write(std::string_view text, mode_t mode = 0600) {
    std::ofstream(file_) << text;
    ASSERT_EQ(::chmod(file_.c_str(), mode), 0);
  }
  absl::StatusOr<std::optional<Token>> find(std::string_view url) { return Token::find(Endpoint::parse(url).value()); }
  absl::StatusOr<std::optional<Token>> find_in_file() { return find("nccl://node1:80?token_file=" + file_.string()); }

  test::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "token";
};

TEST_F(TokenTest, ComesFromTheEnvironment) {
  const Environment variable("BASCULE_TOKEN", "of the environment");
  const absl::StatusOr<std::optional<Token>> token = find("nccl://node1:80");
  ASSERT_THAT(token, IsOk());
  EXPECT_EQ((*token)->secret(), "of the environment");
}

TEST_F(TokenTest, ComesFromAFileOfItsOwnersBeforeTheEnvironment) {
  const Environment variable("BASCULE_TOKEN", "of the environment");
  write("the token of the file\n");
  const absl::StatusOr<std::optional<Token>> token = find_in_file();
  ASSERT_THAT(token, IsOk());
  EXPECT_EQ((*token)->secret(), "the token of the file") << "without the end of the line";
  write("the token of the file", 0400);
  EXPECT_THAT(find_in_file(), IsOk());
}

TEST_F(TokenTest, AFolderNeedsNone) {
  const Environment unset("BASCULE_TOKEN", nullptr);
  const absl::StatusOr<std::optional<Token>> token = find("shm:///x");
  ASSERT_THAT(token, IsOk());
  EXPECT_FALSE(token->has_value());
}

TEST_F(TokenTest, WithoutOneTheTextSaysWhatToSet) {
  const auto refused = StatusIs(StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("node1:80"), HasSubstr("BASCULE_TOKEN"), HasSubstr("token_file=FILE")));
  const Environment unset("BASCULE_TOKEN", nullptr);
  EXPECT_THAT(find("nccl://node1:80"), refused);
  const Environment empty("BASCULE_TOKEN", "");
  EXPECT_THAT(find("nccl://node1:80"), refused);
  write("\n");
  EXPECT_THAT(find_in_file(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is empty")));
}

TEST_F(TokenTest, AShortOneIsRefusedWithTheCommandThatMakesAGoodOne) {
  const auto refused = [](std::string_view place) {
    return StatusIs(StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr(cat("the token in ", place, " has 15 bytes, expected 16 or more")),
                          HasSubstr("bascule-token FILE"), Not(HasSubstr("0123"))));
  };
  const Environment variable("BASCULE_TOKEN", "0123456789abcde");
  EXPECT_THAT(find("nccl://node1:80"), refused("BASCULE_TOKEN"));
  write("  0123456789abcde  \n");
  EXPECT_THAT(find_in_file(), refused(cat("the file ", file_.string())));
  write("0123456789abcdef\n");
  EXPECT_THAT(find_in_file(), IsOk());
}

TEST_F(TokenTest, AFileThatOthersCanReachIsRefusedWithTheCommandThatMendsIt) {
  for (const mode_t mode : {0640, 0604, 0660}) {
    write("of the file", mode);
    EXPECT_THAT(find_in_file(), StatusIs(StatusCode::kPermissionDenied, AllOf(HasSubstr("chmod 600 " + file_.string()),
                                                                              Not(HasSubstr("of the file")))));
  }
}

TEST_F(TokenTest, WhatIsNoTokenFileIsRefused) {
  EXPECT_THAT(find_in_file(), StatusIs(StatusCode::kNotFound, HasSubstr(file_.string())));
  EXPECT_THAT(find("nccl://node1:80?token_file=" + folder_.path().string()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a plain file")));
  write(std::string(4097, 'x'));
  EXPECT_THAT(find_in_file(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("more than 4096 bytes")));
}

}  // namespace
}  // namespace bascule
