// An endpoint's folder under a name that somebody else gave it: another user who may write the parent folder can link
// one run's name to the folder of another run, whose owner and mode are right.
#include <unistd.h>

#include <filesystem>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/receiver/status.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::HasSubstr;

constexpr uid_t kSomebody = 12345;

void expect_refused_by_every_program(const Stage& stage, const fs::path& folder, StatusCode code,
                                     const std::string& text) {
  const std::string endpoint = cat(Stage::GetParam().scheme, "://", folder.string());
  const Scheme* const scheme = stage.given_scheme();
  EXPECT_THAT(Sender::listen({.endpoint = endpoint, .scheme = scheme}).status(), StatusIs(code, HasSubstr(text)));
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint, .worker = "a", .scheme = scheme});
  ASSERT_THAT(receiver, IsOk());
  absl::Status waited;  // on a busy machine the receiver has not looked yet
  for (const Deadline deadline(patience());
       message_of(waited).find(text) == std::string_view::npos && !deadline.passed();)
    waited = receiver->wait_ready(absl::Milliseconds(50));
  EXPECT_THAT(waited, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr(text)));
  for (const std::string& target : {endpoint, folder.string()})
    EXPECT_THAT(observe({.target = target, .scheme = scheme}).status(), StatusIs(code, HasSubstr(text)));
}

TEST_P(Conformance, ALinkToAnotherRunsFolderIsRefused) {
  if (GetParam().place != Place::kFolder) GTEST_SKIP() << "it has no folder that a link could name";
  if (GetParam().readers == Readers::kProcesses) GTEST_SKIP() << "the same programs are tried with threads";
  listen();
  send();
  const fs::path link = folder_.path() / "run-b";
  fs::create_directory_symlink(folder_.path() / "endpoint", link);
  const std::string text = "run-b is a symbolic link; name the folder that it stands for";
  expect_refused_by_every_program(*this, link, StatusCode::kInvalidArgument, text);
  sender_.reset();
  expect_refused_by_every_program(*this, link, StatusCode::kInvalidArgument, text);
}

TEST_P(Conformance, AFolderBelowAnotherUsersLinkIsRefused) {
  if (GetParam().place != Place::kFolder) GTEST_SKIP() << "it has no folder that a link could name";
  if (GetParam().readers == Readers::kProcesses) GTEST_SKIP() << "the same programs are tried with threads";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link away";
  listen();
  send();
  const fs::path link = folder_.path() / "parent";
  fs::create_directory_symlink(".", link);
  ASSERT_EQ(::lchown(link.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
  expect_refused_by_every_program(*this, link / "endpoint", StatusCode::kPermissionDenied,
                                  "parent is a symbolic link of uid 12345");
}

}  // namespace
}  // namespace bascule::test
