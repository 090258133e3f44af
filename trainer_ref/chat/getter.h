// What `attribute=` of a filter looks up in each item.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

using Getter = std::function<absl::StatusOr<Value>(const Value& item)>;

// `path` names an attribute: "function.name", "content.0.text" or an integer. An undefined part becomes `otherwise`, if
// given. If `path` is null or None, the getter returns the item itself.
absl::StatusOr<Getter> make_getter(Machine& machine, const Value* path,
                                   const std::optional<Value>& otherwise = std::nullopt);

// Several attributes, as in "role,name": the getter returns the list of their values.
absl::StatusOr<Getter> make_list_getter(Machine& machine, const Value* paths);

// A text in lower case, and any other value as it is: what filters compare unless case_sensitive is true.
absl::StatusOr<Value> without_case(Machine& machine, const Value& value);

}  // namespace bascule::ref::jinja
