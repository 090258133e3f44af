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

// Returns the next item, or nullopt at the end.
using Iterator = std::function<absl::StatusOr<std::optional<Value>>()>;

// Returns INVALID_ARGUMENT if `value` is not iterable. The iterator keeps alive what it iterates over.
absl::StatusOr<Iterator> iterate(Machine& machine, const Value& value);
bool is_iterable(const Value& value);

// All items of `value`, in a list.
absl::StatusOr<std::vector<Value>> to_items(Machine& machine, const Value& value);

// len(). Returns INVALID_ARGUMENT if the value has none.
absl::StatusOr<std::int64_t> length_of(const Value& value);

// Makes a value of an iterator; `over` is the value that the iterator reads.
Value to_generator(Iterator next, const Value& over);

// Item `i` of a view that keys(), values() or items() returned.
Value item_of(const View& view, std::size_t i);

}  // namespace bascule::ref::jinja
