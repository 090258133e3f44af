// What `attribute=` of filters names: "function.name", "content.0.text" or an integer.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

using Getter = std::function<absl::StatusOr<Value>(const Value& item)>;

// Looks `path` up in an item. A part that is undefined becomes `otherwise`, if that is given. Null or None: the item
// itself.
absl::StatusOr<Getter> make_getter(Machine& machine, const Value* path,
                                   const std::optional<Value>& otherwise = std::nullopt);

}  // namespace bascule::ref::jinja
