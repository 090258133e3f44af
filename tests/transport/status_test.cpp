#include <bascule/transport/status.h>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cerrno>

#include "absl/strings/cord.h"

namespace bascule {
namespace {

TEST(Text, JoinsEveryKindOfString) {
  EXPECT_EQ(cat(std::string_view("a"), std::string("b"), "c", 4, absl::string_view("d")), "abc4d");
}

TEST(Text, CatLeavesErrnoAsItWas) {
  struct AsksTheSystemTwice {  // like an allocation
    operator absl::AlphaNum() const {
      errno = ENOMEM;
      return "/x/y";
    }
  };
  errno = EACCES;
  EXPECT_EQ(cat("open ", AsksTheSystemTwice()), "open /x/y");
  EXPECT_EQ(errno, EACCES);
}

TEST(Text, AnnotatePrefixesAnErrorAndKeepsItsCodeAndPayload) {
  absl::Status status = unavailable("gone");
  status.SetPayload("worker", absl::Cord("engine-0"));
  const absl::Status annotated = annotate(status, "welcome");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(message_of(annotated), "welcome: gone");
  EXPECT_EQ(annotated.GetPayload("worker"), absl::Cord("engine-0"));
}

TEST(Text, AnnotateLeavesOkAlone) { EXPECT_TRUE(annotate(absl::OkStatus(), "welcome").ok()); }

TEST(Text, ErrnoBecomesAStatusOfItsMeaning) {
  const absl::Status status = errno_status(ENOENT, "open /x/y");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(message_of(status), "open /x/y: No such file or directory");
  EXPECT_EQ(errno_status(EACCES, "bind").code(), absl::StatusCode::kPermissionDenied);
}

TEST(Text, NearestFindsTheWordThatWasMeant) {
  EXPECT_EQ(nearest("timout", {"timeout", "flip_timeout"}), "timeout");
  EXPECT_EQ(nearest("smh", {"memmap", "shm"}), "shm");  // swapped letters count once
  EXPECT_EQ(nearest("sh", {"memmap", "shm"}), "shm");
  EXPECT_EQ(nearest("mmap", {"shm", "memmap"}), "memmap");
}

TEST(Text, NearestTakesTheBetterOfTwoNearWords) {
  EXPECT_EQ(nearest("heartbeet", {"heartbead", "heartbeat"}), "heartbeat");
}

TEST(Text, NearestIgnoresCase) { EXPECT_EQ(nearest("DIGEST", {"digest"}), "digest"); }

TEST(Text, NearestFindsNothingNearAnotherWord) {
  EXPECT_EQ(nearest("colour", {"timeout", "digest"}), "");
  EXPECT_EQ(nearest("", {"timeout"}), "");
  EXPECT_EQ(nearest("timeout", {}), "");
}

TEST(ErrnoStatus, NamesTheLimitOfAFilesSizeThatIsReached) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status status = errno_status(EFBIG, "write /x/y");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(message_of(status),
            "write /x/y: File too large; RLIMIT_FSIZE (ulimit -f) of this process is 4096 bytes: raise it");
}

TEST(ErrnoStatus, NamesTheLimitOfDescriptorsThatIsReached) {
  EXPECT_THAT(std::string(message_of(errno_status(EMFILE, "accept"))),
              testing::AllOf(testing::StartsWith("accept: Too many open files; RLIMIT_NOFILE (ulimit -n)"),
                             testing::HasSubstr("raise it")));
  EXPECT_THAT(std::string(message_of(errno_status(ENFILE, "accept"))), testing::HasSubstr("fs.file-max"));
  EXPECT_EQ(message_of(errno_status(ENOENT, "open")), "open: No such file or directory");
}

}  // namespace
}  // namespace bascule
