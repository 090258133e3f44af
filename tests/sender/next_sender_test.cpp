// A sender at an endpoint whose last sender still lives, though workers can no longer find it, and the files of both.
#include "sender/wired.h"  // first: see there

#include <filesystem>
#include <fstream>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class NextSender : public test::Wired {
 protected:
  absl::StatusOr<Sender> next() const {
    return Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=60s")});
  }
  // Whether a worker finds a sender.
  void expect_found() const {
    const auto worker = connect();
    worker->say(test::WireWorker::hello("w", 1));
    worker->expect<Welcome>();
  }
};

TEST_F(NextSender, KeepsItsSocketWhereTheLastOneEnds) {
  listen();
  for (const char* name : {"control.sock", "sender.lock"}) std::filesystem::remove(folder_.path() / name);
  absl::StatusOr<Sender> after = next();
  ASSERT_THAT(after, IsOk());
  ASSERT_THAT(after->register_model(model_.source()), IsOk());
  ASSERT_THAT(after->send_async(), IsOk());
  ASSERT_THAT(after->wait_async(test::patience()), IsOk());
  sender_.reset();
  expect_found();
}

TEST_F(NextSender, TakesNothingFromOneWhoseLockIsGone) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  std::filesystem::remove(folder_.path() / "sender.lock");
  EXPECT_THAT(next(), StatusIs(StatusCode::kAlreadyExists,
                               AllOf(HasSubstr("another sender listens at "), HasSubstr("its sender.lock is gone"))));
  expect_found();
}

TEST_F(NextSender, LeavesAFileOfTheSocketsNameAlone) {
  const std::filesystem::path file = folder_.path() / "control.sock";
  std::ofstream(file) << "mine";
  EXPECT_THAT(next(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("control.sock is not a socket")));
  EXPECT_EQ(std::filesystem::file_size(file), 4u);
}

TEST_F(NextSender, LeavesALinkOfTheLocksNameAlone) {
  const std::filesystem::path file = folder_.path() / "sender.lock";
  std::filesystem::create_symlink("elsewhere", file);
  EXPECT_THAT(next(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("sender.lock is not a file")));
  EXPECT_TRUE(std::filesystem::is_symlink(file));
}

}  // namespace
}  // namespace bascule
