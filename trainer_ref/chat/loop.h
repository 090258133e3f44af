// The variable `loop`, and what a `for` goes over. It reads ahead only as far as the template asks it to.
#pragma once

#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Loop {
  Iterator iterator;
  std::optional<std::int64_t> known_length;  // where what it goes over has one
  std::deque<Value> ahead;
  std::int64_t index0 = -1;
  int depth0 = 0;
  Value current, previous;
  std::optional<std::vector<Value>> last_changed;  // what loop.changed() was called with

  absl::StatusOr<std::optional<Value>> next();
  absl::StatusOr<std::int64_t> length();
  absl::StatusOr<bool> has_next();
};

// loop.NAME; none where there is no such attribute.
absl::StatusOr<std::optional<Value>> loop_attribute(Loop& loop, std::string_view name);

}  // namespace bascule::ref::jinja
