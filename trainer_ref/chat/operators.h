// Python's arithmetic, subscripts and slices, and Jinja2's attributes.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// INVALID_ARGUMENT: Python has no such operation on these, or a division by zero. UNIMPLEMENTED: the result needs more
// than 64 bits, or a text is formatted by %.
absl::StatusOr<Value> compute(Machine& machine, Operator operation, const Value& left, const Value& right);
absl::StatusOr<Value> negative(const Value& value);
absl::StatusOr<Value> positive(const Value& value);

// value.NAME: an attribute of Python's type, such as a method, and only then an item of that name. Undefined where
// there is neither, or where the sandbox hides it. UNIMPLEMENTED: Python's type has it, and it is not known here.
absl::StatusOr<Value> attribute(Machine& machine, const Value& value, std::string_view name);

// value[key]: an item, and only then an attribute. Undefined where there is neither.
absl::StatusOr<Value> subscript(Machine& machine, const Value& value, const Value& key);

// value[start:stop:step], each of which may be None.
absl::StatusOr<Value> slice(Machine& machine, const Value& value, const Value& start, const Value& stop,
                            const Value& step);

}  // namespace bascule::ref::jinja
