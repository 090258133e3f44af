// The values of a template: Python's, as far as a chat template can reach them.
//
// A Value is cheap to copy. Texts, lists, tuples and dicts never change and may be shared. What can change belongs to
// one rendering and is freed with it: namespaces, loops and the scopes of macros live in its Machine, and values only
// point there. So no value can hold itself or outlive its rendering. Not for use by several threads at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref::jinja {

class Machine;
class Value;
struct Dict;
struct Loop;        // loop.h
struct Macro;       // scope.h
struct Function;    // functions.h
struct MethodCall;  // methods.h

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kBigInteger,
  kText,
  kList,
  kTuple,
  kDict,
  kView,
  kRange,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,
  kGenerator,
};

struct Sequence;

// Jinja's Undefined. `why` is the error of operations that need its value; null for the plain one.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
// An integer beyond 64 bits, which only JSON brings. It can be printed, but not computed with.
struct BigInteger {
  std::shared_ptr<const std::string> digits;
};
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool is_safe = false;  // Markup, which the filter `safe` makes
};
// The result of a dict's keys(), values() or items().
struct View {
  enum Part { kKeys, kValues, kItems } part;
  std::shared_ptr<const Dict> dict;
};
struct Range {
  std::int64_t start, stop, step;  // as in Python; step is not 0
  std::int64_t size() const;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
};
// An iterator; items that it returned are gone. Empty at the end.
struct Generator {
  std::function<absl::StatusOr<std::optional<Value>>()> next;
  int nesting = 0;
};
struct Namespace;

class Value {
 public:
  Value() : data_(Undefined{}) {}  // undefined
  static Value undefined(std::string why);
  static Value none() { return Value(nullptr); }
  template <std::same_as<bool> Bool>  // no pointers
  static Value of(Bool value) {
    return Value(Data(value));
  }
  static Value of(std::int64_t value) { return Value(Data(value)); }
  static Value of(double value) { return Value(Data(value)); }
  static Value of(std::string text, bool is_safe = false);
  static Value of_digits(std::string digits);  // beyond 64 bits, perhaps after a minus
  static Value of(std::string_view text) { return of(std::string(text)); }
  static Value of(const char* text) { return of(std::string(text)); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(std::vector<std::pair<Value, Value>> items);  // keys are hashable, and each is there once
  static Value of(std::shared_ptr<const Dict> dict) { return Value(Data(std::move(dict))); }
  static Value of(View view) { return Value(Data(std::move(view))); }
  static Value of(Range range) { return Value(Data(range)); }
  static Value of(Namespace* space) { return Value(Data(space)); }
  static Value of(Loop* loop) { return Value(Data(loop)); }
  static Value of(const Macro* macro) { return Value(Data(macro)); }
  static Value of(const Function* function) { return Value(Data(function)); }
  static Value of(std::shared_ptr<const MethodCall> method) { return Value(Data(std::move(method))); }
  static Value of(std::shared_ptr<Generator> generator) { return Value(Data(std::move(generator))); }

  Kind kind() const;
  bool is(Kind other) const { return kind() == other; }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }  // list or tuple
  bool is_number() const;                     // bool, integer or float; not a big integer
  std::optional<std::int64_t> index() const;  // of a bool or an integer, which both count as integers

  // Accessors; the value must be of the kind that they name.
  const std::string& text() const { return *std::get<Text>(data_).bytes; }
  bool is_safe() const;  // a text that is Markup
  bool flag() const { return std::get<bool>(data_); }
  std::int64_t integer() const { return std::get<std::int64_t>(data_); }
  double number() const;  // of a bool, an integer or a float
  const std::string& digits() const { return *std::get<BigInteger>(data_).digits; }
  const std::vector<Value>& items() const;
  const std::shared_ptr<const Dict>& dict() const { return std::get<std::shared_ptr<const Dict>>(data_); }
  const View& view() const { return std::get<View>(data_); }
  const Range& range() const { return std::get<Range>(data_); }
  Namespace* space() const { return std::get<Namespace*>(data_); }
  Loop* loop() const { return std::get<Loop*>(data_); }
  const Macro* macro() const { return std::get<const Macro*>(data_); }
  const Function* function() const { return std::get<const Function*>(data_); }
  const MethodCall& method() const { return *std::get<std::shared_ptr<const MethodCall>>(data_); }
  Generator& generator() const { return *std::get<std::shared_ptr<Generator>>(data_); }

  // The error of an operation on an undefined value.
  absl::Status undefined_error() const;

  bool truth() const;         // bool(value)
  int nesting() const;        // how deep containers nest in it; 0 if it is no container
  const void* place() const;  // of a container: equal if two values are the same object; else null
  std::string type() const;   // Python's name of its type, for errors

 private:
  using Data =
      std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, BigInteger, Text,
                   std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, View, Range, Namespace*, Loop*,
                   const Macro*, const Function*, std::shared_ptr<const MethodCall>, std::shared_ptr<Generator>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  explicit Value(std::nullptr_t) : data_(nullptr) {}
  Data data_;
};

struct Sequence {
  std::vector<Value> items;
  bool is_tuple = false;
  int nesting = 1;
};

// Keeps the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int nesting = 1;
  const Value* find(std::string_view key) const;
  // Returns INVALID_ARGUMENT if `key` cannot be a key.
  absl::StatusOr<const Value*> find(Machine& machine, const Value& key) const;
  // Replaces what is under an equal key, or appends.
  absl::Status set(Machine& machine, const Value& key, Value value);
};

// The result of namespace(): the only thing that a template can change.
struct Namespace {
  Dict attributes;
};

// Returns INVALID_ARGUMENT if the JSON nests too deep or has invalid UTF-8. A binary value is an integer of
// parse_ordered().
absl::StatusOr<Value> to_value(const nlohmann::ordered_json& json, int depth = 0);

inline constexpr int kMaxNesting = 100;  // of lists, tuples and dicts in each other

}  // namespace bascule::ref::jinja
