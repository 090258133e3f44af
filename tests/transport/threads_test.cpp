#include <bascule/transport/threads.h>

#include <gmock/gmock.h>

#include <cerrno>
#include <system_error>

#include <boost/system/system_error.hpp>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

TEST(Threads, ThatCannotBeStartedAreAnErrorWithTheLimits) {
  const auto start = []() -> absl::Status {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  EXPECT_THAT(starting_threads("the sender", start),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the sender: no thread can be started: "), HasSubstr("the limits here are "),
                             HasSubstr("use fewer threads"))));
}

// Objects that start threads also open descriptors; Boost has its own exception.
TEST(Threads, AreNotBlamedForAnotherLimit) {
  const auto by_the_library = []() -> absl::Status {
    throw std::system_error(EMFILE, std::system_category(), "epoll");
  };
  const auto by_boost = []() -> absl::Status {
    throw boost::system::system_error(EMFILE, boost::system::system_category(), "eventfd_select_interrupter");
  };
  const auto refused = StatusIs(
      StatusCode::kResourceExhausted,
      AllOf(HasSubstr("the sender: Too many open files; RLIMIT_NOFILE (ulimit -n)"), testing::Not(HasSubstr("NPROC"))));
  EXPECT_THAT(starting_threads("the sender", by_the_library), refused);
  EXPECT_THAT(starting_threads("the sender", by_boost), refused);
}

TEST(Threads, ThatAreStartedChangeNothing) {
  EXPECT_THAT(starting_threads("it", [] { return absl::OkStatus(); }), IsOk());
  EXPECT_EQ(*starting_threads("it", []() -> absl::StatusOr<int> { return 7; }), 7);
}

}  // namespace
}  // namespace bascule
