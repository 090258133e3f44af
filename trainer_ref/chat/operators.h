// Python's arithmetic, subscripts and slices, and Jinja2's attributes.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// Returns INVALID_ARGUMENT if Python has no such operation on these values, or if it divides by zero; UNIMPLEMENTED if
// the result needs more than 64 bits. A text is formatted by % (percent.h).
absl::StatusOr<Value> compute(Machine& machine, Operator operation, const Value& left, const Value& right);
absl::StatusOr<Value> negative(const Value& value);
absl::StatusOr<Value> positive(const Value& value);

// Returns value.NAME: an attribute of Python's type, such as a method, else an item of that name; undefined if there is
// neither or the sandbox hides it. Returns UNIMPLEMENTED if Python's type has it and it is not supported here.
absl::StatusOr<Value> attribute(Machine& machine, const Value& value, std::string_view name);

// Returns value[key]: an item, else an attribute; undefined if there is neither.
absl::StatusOr<Value> subscript(Machine& machine, const Value& value, const Value& key);

// Returns value[start:stop:step]; start, stop and step may each be None.
absl::StatusOr<Value> slice(Machine& machine, const Value& value, const Value& start, const Value& stop,
                            const Value& step);

}  // namespace bascule::ref::jinja
