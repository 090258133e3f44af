#include <bascule/trainer_ref/chat/methods.h>

#include <algorithm>

#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/texts.h>
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
  static const auto* of_text =
      new MethodNames{"casefold",    "center",  "index",      "isalnum",   "isalpha",      "isdigit",      "islower",
                      "isspace",     "isupper", "ljust",      "partition", "removeprefix", "removesuffix", "rfind",
                      "rindex",      "rjust",   "rpartition", "rsplit",    "splitlines",   "zfill",        "encode",
                      "expandtabs",  "format",  "format_map", "isascii",   "isdecimal",    "isidentifier", "isnumeric",
                      "isprintable", "istitle", "maketrans",  "swapcase",  "translate"};
  static const auto* of_dict = new MethodNames{"copy", "fromkeys"};
  static const auto* of_list = new MethodNames{"copy", "count", "index"};
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
    case Kind::kList: return *of_list;
    case Kind::kTuple: return *of_range;
    case Kind::kBool:
    case Kind::kInteger: return *of_integer;
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

template <Side side>
absl::StatusOr<Value> strip(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto characters, arguments.text(0));
  if (!characters) return Value::of(stripped(self.text(), side));
  BASCULE_TRY(machine.charge(characters->size() * (self.text().size() / 64 + 1)));
  return Value::of(stripped(self.text(), *characters, side));
}

template <Case wanted>
absl::StatusOr<Value> to_case(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(std::string text, in_case(self.text(), wanted));
  return Value::of(std::move(text));
}

// Python's own title(): each run of letters begins with a capital. (The filter knows words.)
absl::StatusOr<Value> to_title(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (!is_ascii(self.text()))
    return unimplemented("title() of a text beyond ASCII is not supported; use the filter title");
  std::string text = self.text();
  bool inside = false;
  for (char& c : text) {
    const bool is_lower = c >= 'a' && c <= 'z', is_upper = c >= 'A' && c <= 'Z';
    if (inside ? is_upper : is_lower) c = static_cast<char>(c ^ 0x20);
    inside = is_lower || is_upper;
  }
  return Value::of(std::move(text));
}

absl::StatusOr<Value> replace(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto from, arguments.text(0));
  BASCULE_ASSIGN(const auto to, arguments.text(1));
  BASCULE_ASSIGN(const auto count, arguments.integer(2));
  if (!from || !to) return invalid_argument("replace: expected texts, found None");
  if (arguments.find(2) != nullptr && !count) return invalid_argument("replace: expected a count, found None");
  BASCULE_ASSIGN(std::string text, replaced(machine, self.text(), *from, *to, count.value_or(-1)));
  return Value::of(std::move(text));
}

absl::StatusOr<Value> join_texts(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, *arguments.find(0)));
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) return invalid_argument("join: expected texts, found ", items[i].type());
    if (items[i].is_safe()) return unimplemented("join() of a text marked safe is not supported");
    if (i > 0) text += self.text();
    text += items[i].text();
    BASCULE_TRY(machine.charge((self.text().size() + items[i].text().size()) / 64 + 1));
  }
  BASCULE_TRY(machine.charge_bytes(text.size()));
  return Value::of(std::move(text));
}

template <bool at_end>
absl::StatusOr<Value> has_affix(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  const Value& affix = *arguments.find(0);
  const std::vector<Value> one = {affix};
  if (affix.is(Kind::kUndefined)) return affix.undefined_error();
  for (const Value& each : affix.is(Kind::kTuple) ? affix.items() : one) {
    BASCULE_TRY(machine.charge(1));
    if (!each.is(Kind::kText)) return invalid_argument("expected a text or a tuple of texts, found ", each.type());
    if (at_end ? self.text().ends_with(each.text()) : self.text().starts_with(each.text())) return Value::of(true);
  }
  return Value::of(false);
}

absl::StatusOr<Value> find(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("expected a text to search for, found None");
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  const std::size_t at = self.text().find(*wanted);
  if (at == std::string::npos) return Value::of(std::int64_t{-1});
  return Value::of(count_code_points(std::string_view(self.text()).substr(0, at)));
}

absl::StatusOr<Value> count(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("count: expected a text, found None");
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  const std::string_view text = self.text();
  if (wanted->empty()) return Value::of(count_code_points(text) + 1);
  std::int64_t number = 0;
  for (std::size_t at = 0; (at = text.find(*wanted, at)) != std::string_view::npos; at += wanted->size()) ++number;
  return Value::of(number);
}

// split(), at most `count` times; a negative count means no limit.
std::vector<std::string_view> split_by(std::string_view text, std::string_view separator, std::int64_t count) {
  std::vector<std::string_view> parts;
  for (; count != 0; --count) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// The words of a text, between runs of whitespace.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const bool space = is_space(next_code_point(text, at));
    if (inside && space) words.push_back(text.substr(begin, here - begin));
    if (!inside && !space) begin = here;
    inside = !space;
  }
  if (inside) words.push_back(text.substr(begin));
  return words;
}

absl::StatusOr<Value> split(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto separator, arguments.text(0));
  BASCULE_ASSIGN(const auto count, arguments.integer(1));
  if (separator && separator->empty()) return invalid_argument("split: the separator is empty");
  if (arguments.find(1) != nullptr && !count) return invalid_argument("split: expected a number, found None");
  if (!separator && count.value_or(-1) >= 0)
    return unimplemented("split: a limit without a separator is not supported");
  const auto parts = separator ? split_by(self.text(), *separator, count.value_or(-1)) : words_of(self.text());
  BASCULE_TRY(machine.charge(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::of(part));
  return Value::list(std::move(items));
}

}  // namespace

const std::vector<Method>& text_methods() {
  static const auto* table = new std::vector<Method>{
      {"strip", "/ characters?", strip<Side::kBoth>},
      {"lstrip", "/ characters?", strip<Side::kLeft>},
      {"rstrip", "/ characters?", strip<Side::kRight>},
      {"upper", "", to_case<Case::kUpper>},
      {"lower", "", to_case<Case::kLower>},
      {"capitalize", "", to_case<Case::kCapitalized>},
      {"title", "", to_title},
      {"replace", "/ old new count?", replace},
      {"join", "/ items", join_texts},
      {"startswith", "/ prefix start! stop!", has_affix<false>},
      {"endswith", "/ suffix start! stop!", has_affix<true>},
      {"find", "/ text start! stop!", find},
      {"count", "/ text start! stop!", count},
      {"split", "sep? maxsplit?", split},
  };
  return *table;
}

const std::vector<Method>& dict_methods() {
  static const auto* table = new std::vector<Method>{
      {"items", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kItems); }},
      {"keys", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kKeys); }},
      {"values", "", [](Machine&, const Value& self, const Bound&) { return view_of(self, View::kValues); }},
      {"get", "/ key default?", get},
  };
  return *table;
}

const std::vector<Method>& loop_methods() {
  static const auto* table = new std::vector<Method>{{"cycle", "*", nullptr}, {"changed", "*", nullptr}};
  return *table;
}

const Method* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kText: {
      return in(text_methods(), name);
    }
    case Kind::kDict: return in(dict_methods(), name);
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
