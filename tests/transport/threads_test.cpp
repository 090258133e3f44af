#include <bascule/transport/threads.h>

#include <gmock/gmock.h>

#include <system_error>

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

TEST(Threads, ThatAreStartedChangeNothing) {
  EXPECT_THAT(starting_threads("it", [] { return absl::OkStatus(); }), IsOk());
  EXPECT_EQ(*starting_threads("it", []() -> absl::StatusOr<int> { return 7; }), 7);
}

}  // namespace
}  // namespace bascule
