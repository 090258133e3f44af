// Python's str.format().
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// `text`.format(*positional, **named), as Jinja2's sandbox computes it. Returns INVALID_ARGUMENT if Python raises an
// error, UNIMPLEMENTED for rare parts of the syntax, such as !a and the types c and n.
absl::StatusOr<Value> format_braces(Machine& machine, std::string_view text, const Arguments& arguments);

}  // namespace bascule::ref::jinja
