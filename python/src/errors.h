// absl::Status and Python's exceptions.
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

// Of seconds, or none: for ever. INVALID_ARGUMENT: not a number, or less than 0.
absl::Duration timeout_of(std::optional<double> seconds);

nb::object error_of(const absl::Status& status);  // a BasculeError, or None where it is OK
absl::Status status_of(nb::handle exception);     // by its `code`, where it has one; else INTERNAL

void bind_errors();

}  // namespace bascule::python
