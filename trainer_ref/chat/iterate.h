// Python's iter() and len().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// The next item; none at the end.
using Iterator = std::function<absl::StatusOr<std::optional<Value>>()>;

// INVALID_ARGUMENT: `value` is not iterable. What it iterates over may vanish meanwhile: the iterator holds it.
absl::StatusOr<Iterator> iterate(Machine& machine, const Value& value);
bool is_iterable(const Value& value);

// All items of `value`, in a list.
absl::StatusOr<std::vector<Value>> to_items(Machine& machine, const Value& value);

// len(). INVALID_ARGUMENT: it has none.
absl::StatusOr<std::int64_t> length_of(const Value& value);

// An iterator as a value; `over` is what it reads.
Value to_generator(Iterator next, const Value& over);

// Item `i` of what keys(), values() or items() gave.
Value item_of(const View& view, std::size_t i);

}  // namespace bascule::ref::jinja
