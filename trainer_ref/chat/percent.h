// Python's operator % of a text.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// `text` % `values`: a tuple of values, a dict for %(name)s, or one value. Returns INVALID_ARGUMENT if Python raises an
// error, UNIMPLEMENTED for a width from the values (*) and the type c.
absl::StatusOr<Value> format_percent(Machine& machine, std::string_view text, const Value& values);

}  // namespace bascule::ref::jinja
