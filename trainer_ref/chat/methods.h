// Methods of Python's types, as templates call them: message.content.strip(), tool.items().
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Method {
  std::string_view name;
  std::string_view parameters;  // as in Bound::bind(); "*": any, and calls.cpp runs it
  absl::StatusOr<Value> (*run)(Machine& machine, const Value& self, const Bound& arguments);
};

// A method with its object: the value of `message.items` before it is called.
struct MethodCall {
  Value self;
  const Method* method;
};

// Returns null if the type has no such method, or if it is not supported here.
const Method* find_method(const Value& self, std::string_view name);

// Whether the sandbox hides this attribute, because it would change the value or because its name begins with an
// underscore.
bool is_hidden(const Value& self, std::string_view name);

// Whether Python's type has an attribute of this name that is neither supported here nor hidden.
bool is_unknown_attribute(const Value& self, std::string_view name);

// The tables.
const std::vector<Method>& text_methods();  // text_methods.cpp
const std::vector<Method>& dict_methods();
const std::vector<Method>& list_methods();
const std::vector<Method>& tuple_methods();
const std::vector<Method>& loop_methods();

Value macro_name(const Value& macro);

}  // namespace bascule::ref::jinja
