// Matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(sender.send(), IsOk());
//   EXPECT_THAT(sender.send(), StatusIs(absl::StatusCode::kAborted, HasSubstr("worker a")));
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::test {

inline const absl::Status& status_of(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& status_of(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << status_of(arg).ToString();
  return status_of(arg).ok();
}

MATCHER_P2(StatusIs, code, text,
           "is " + absl::StatusCodeToString(code) + " with a text that " +
               testing::DescribeMatcher<std::string>(text)) {
  const absl::Status& status = status_of(arg);
  *result_listener << status.ToString();
  return status.code() == code && testing::Value(std::string(status.message()), text);
}

}  // namespace bascule::test
