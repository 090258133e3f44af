#include <bascule/trainer_ref/chat/methods.h>

#include <algorithm>

#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

using MethodNames = std::vector<std::string_view>;

bool is_one_of(std::string_view name, const MethodNames& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Method* in(const std::vector<Method>& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Method& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

// Attributes of Python's types that are not supported here.
const MethodNames& others(Kind kind) {
  static const auto* of_text = new MethodNames{"casefold",    "encode",  "expandtabs", "format_map", "isidentifier",
                                               "isprintable", "istitle", "maketrans",  "swapcase",   "translate"};
  static const auto* of_dict = new MethodNames{"fromkeys"};
  // A pair that groupby returns has these two; as tuples, both would be undefined.
  static const auto* of_tuple = new MethodNames{"grouper", "list"};
  static const auto* of_integer =
      new MethodNames{"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag",
                      "numerator",        "real",      "to_bytes",   "is_integer"};
  static const auto* of_float =
      new MethodNames{"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"};
  static const auto* of_range = new MethodNames{"count", "index"};
  static const auto* of_view = new MethodNames{"isdisjoint", "mapping"};
  static const auto* of_macro =
      new MethodNames{"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller"};
  static const auto* of_generator =
      new MethodNames{"close", "gi_code", "gi_frame", "gi_running", "gi_suspended", "gi_yieldfrom", "send", "throw"};
  static const auto* none = new MethodNames;
  switch (kind) {
    case Kind::kText: return *of_text;
    case Kind::kDict: return *of_dict;
    case Kind::kTuple: return *of_tuple;
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kBigInteger: return *of_integer;
    case Kind::kFloat: return *of_float;
    case Kind::kRange: return *of_range;
    case Kind::kView: return *of_view;
    case Kind::kMacro: return *of_macro;
    case Kind::kGenerator: return *of_generator;
    default: return *none;
  }
}

absl::StatusOr<Value> view_of(const Value& self, View::Part part) { return Value::of(View{part, self.dict()}); }

absl::StatusOr<Value> get(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const Value* found, self.dict()->find(machine, *arguments.find(0)));
  return found != nullptr ? *found : arguments.get(1, Value::none());
}

// A value cannot change, so it is its own copy.
absl::StatusOr<Value> copy(Machine&, const Value& self, const Bound&) { return self; }

absl::StatusOr<Value> count_item(Machine& machine, const Value& self, const Bound& arguments) {
  std::int64_t number = 0;
  for (const Value& item : self.items()) {
    BASCULE_ASSIGN(const bool is_it, equal(machine, item, *arguments.find(0)));
    number += is_it ? 1 : 0;
  }
  return Value::of(number);
}

absl::StatusOr<Value> index_of_item(Machine& machine, const Value& self, const Bound& arguments) {
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    BASCULE_ASSIGN(const bool is_it, equal(machine, self.items()[i], *arguments.find(0)));
    if (is_it) return Value::of(static_cast<std::int64_t>(i));
  }
  return invalid_argument("index: no item is equal to the one sought");
}

}  // namespace

const std::vector<Method>& dict_methods() {
  static const auto* table = new std::vector<Method>{
      {"items", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kItems); }},
      {"keys", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kKeys); }},
      {"values", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kValues); }},
      {"get", "/ key default?", get},
      {"copy", "", copy},
  };
  return *table;
}

const std::vector<Method>& list_methods() {
  static const auto* table = new std::vector<Method>{
      {"copy", "", copy},
      {"count", "/ value", count_item},
      {"index", "/ value start! stop!", index_of_item},
  };
  return *table;
}

const std::vector<Method>& tuple_methods() {
  static const auto* table = new std::vector<Method>{
      {"count", "/ value", count_item},
      {"index", "/ value start! stop!", index_of_item},
  };
  return *table;
}

const std::vector<Method>& loop_methods() {
  static const auto* table = new std::vector<Method>{{"cycle", "*", nullptr}, {"changed", "*", nullptr}};
  return *table;
}

const Method* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kText: return in(text_methods(), name);
    case Kind::kDict: return in(dict_methods(), name);
    case Kind::kList: return in(list_methods(), name);
    case Kind::kTuple: return in(tuple_methods(), name);
    case Kind::kLoop: return in(loop_methods(), name);
    default: return nullptr;
  }
}

bool is_hidden(const Value& self, std::string_view name) {
  static const auto* of_dict = new MethodNames{"clear", "pop", "popitem", "setdefault", "update"};
  static const auto* of_list =
      new MethodNames{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  if (name.starts_with("__") && name.ends_with("__")) return true;
  if (self.is(Kind::kDict)) return is_one_of(name, *of_dict);
  return self.is(Kind::kList) && is_one_of(name, *of_list);
}

bool is_unknown_attribute(const Value& self, std::string_view name) { return is_one_of(name, others(self.kind())); }

Value macro_name(const Value& macro) {
  return macro.macro()->signature->name.empty() ? Value::none() : Value::of(macro.macro()->signature->name);
}

}  // namespace bascule::ref::jinja
