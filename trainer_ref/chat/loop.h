// The variable `loop`, and the iteration of a `for`. It reads ahead only as far as the template needs.
#pragma once

#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Loop {
  Iterator iterator;
  std::optional<std::int64_t> known_length;  // if its iterable has one
  std::deque<Value> ahead;
  std::int64_t index0 = -1;
  int depth0 = 0;
  Value current, previous;
  std::optional<std::vector<Value>> last_changed;  // the arguments of the last loop.changed()

  absl::StatusOr<std::optional<Value>> next();
  absl::StatusOr<std::int64_t> length();
  absl::StatusOr<bool> has_next();
};

// loop.NAME, or nullopt if there is no such attribute.
absl::StatusOr<std::optional<Value>> loop_attribute(Loop& loop, std::string_view name);

}  // namespace bascule::ref::jinja
