// Filters, tests and functions: their tables, and how arguments are bound to their parameters as Python does.
//
// The parser refuses every name that the tables lack, including names that Jinja2 has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments, each at the place of its parameter.
class Bound {
 public:
  // `parameters` are names, such as "old new count?". One with ? may be left out. One with ! must be left out: Jinja2
  // has it, but it is not supported here. Names after / are bound by place alone. `name` is the callee's. Returns
  // INVALID_ARGUMENT if an argument is missing, surplus or unknown.
  static absl::StatusOr<Bound> bind(std::string_view name, std::string_view parameters, Arguments arguments);

  const Value* find(std::size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  Value get(std::size_t i, const Value& otherwise) const { return values_[i] ? *values_[i] : otherwise; }
  bool flag(std::size_t i) const { return values_[i] && values_[i]->truth(); }
  // Returns nullopt if the argument is missing or None, INVALID_ARGUMENT if it has another type.
  absl::StatusOr<std::optional<std::int64_t>> integer(std::size_t i) const;
  absl::StatusOr<std::optional<std::string>> text(std::size_t i) const;

 private:
  std::string name_;
  std::vector<std::optional<Value>> values_;
};

// `parameters` as in Bound::bind().
struct Filter {
  std::string_view name;
  std::string_view parameters;
  absl::StatusOr<Value> (*run)(Machine& machine, const Value& value, const Bound& arguments);
};
// A filter whose parameters depend on its arguments, such as map.
struct OpenFilter {
  std::string_view name;
  absl::StatusOr<Value> (*run)(Machine& machine, const Value& value, Arguments arguments);
};
struct Test {
  std::string_view name;
  std::string_view parameters;
  absl::StatusOr<bool> (*run)(Machine& machine, const Value& value, const Bound& arguments);
};
struct Function {
  std::string_view name;
  absl::StatusOr<Value> (*run)(Machine& machine, const Arguments& arguments);
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Returns UNIMPLEMENTED if there is no such filter or test here.
absl::StatusOr<Value> apply_filter(Machine& machine, std::string_view name, const Value& value, Arguments arguments);
absl::StatusOr<bool> apply_test(Machine& machine, std::string_view name, const Value& value, Arguments arguments);

// A global function, or null if there is none of this name.
const Function* find_function(std::string_view name);
// Whether Jinja2 has a global of this name that is not supported here.
bool is_unknown_global(std::string_view name);

// The tables, by file.
const std::vector<Filter>& text_filters();
const std::vector<Filter>& list_filters();
const std::vector<Filter>& order_filters();
const std::vector<Filter>& part_filters();
const std::vector<OpenFilter>& open_filters();
const std::vector<Test>& tests();

}  // namespace bascule::ref::jinja
