// Python's ==, <, `in` and hash() over a template's values.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// Returns INVALID_ARGUMENT if the values nest too deep. Each part that is compared costs `machine` a step.
absl::StatusOr<bool> equal(Machine& machine, const Value& left, const Value& right, int depth = 0);

// Whether `left` < `right`. Returns INVALID_ARGUMENT if they have no order.
absl::StatusOr<bool> less(Machine& machine, const Value& left, const Value& right, int depth = 0);

// Whether `left` <= `right`.
absl::StatusOr<bool> less_or_equal(Machine& machine, const Value& left, const Value& right);

// Whether `item` is in `container`. Returns INVALID_ARGUMENT if that is no container or cannot hold such an item.
absl::StatusOr<bool> contains(Machine& machine, const Value& container, const Value& item);

// Returns INVALID_ARGUMENT if `key` cannot be the key of a dict.
absl::Status check_hashable(Machine& machine, const Value& key);

}  // namespace bascule::ref::jinja
