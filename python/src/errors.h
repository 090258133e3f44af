// Converts between absl::Status and Python's exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace bascule::python {

namespace nb = nanobind;

// Thrown with an error; becomes a bascule.BasculeError with its code and text.
struct Failure {
  absl::Status status;
};

inline void check(absl::Status status) {
  if (!status.ok()) throw Failure{std::move(status)};
}

template <typename T>
T value_of(absl::StatusOr<T> result) {
  check(result.status());
  return *std::move(result);
}

// Converts seconds; none means no limit. Throws Failure with INVALID_ARGUMENT if it is not a number, or negative.
absl::Duration timeout_of(std::optional<double> seconds);

nb::object error_of(const absl::Status& status);  // a BasculeError, or None if it is OK
absl::Status status_of(nb::handle exception);     // with its `code` if it has a known one, else INTERNAL

void bind_errors();

}  // namespace bascule::python
