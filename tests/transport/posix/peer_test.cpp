#include <bascule/transport/posix/peer.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/status.h"
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

TEST(Peer, IsTakenAsTheSameUser) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  EXPECT_THAT(check_peer(ours.get(), ::geteuid()), IsOk());
}

TEST(Peer, IsRefusedAsAnotherUser) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  const uid_t other = ::geteuid() + 1;
  EXPECT_THAT(
      check_peer(ours.get(), other),
      StatusIs(StatusCode::kPermissionDenied, HasSubstr(cat("(pid ", ::getpid(), ") runs as uid ", ::geteuid(),
                                                            ", expected ", other, "; run both ends as one user"))));
}

TEST(Peer, IsUnknownWithoutASocket) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(check_peer(file.get(), ::geteuid()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ask for the user at the other end")));
}

}  // namespace
}  // namespace bascule
