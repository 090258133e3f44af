#include <bascule/trainer_ref/chat/functions.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

template <typename Table>
const typename Table::value_type* in(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Filter* find_filter(std::string_view name) {
  for (const auto* table : {&text_filters(), &list_filters(), &order_filters(), &part_filters()}) {
    if (const Filter* filter = in(*table, name)) return filter;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Bound> Bound::bind(std::string_view name, std::string_view parameters, Arguments arguments) {
  Bound bound;
  bound.name_ = name;
  std::vector<bool> needed, refused;
  std::vector<std::string_view> names;
  bool by_place_alone = false;
  while (!parameters.empty()) {
    const std::size_t end = std::min(parameters.find(' '), parameters.size());
    std::string_view word = parameters.substr(0, end);
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
    if (word == "/") {
      by_place_alone = true;
      continue;
    }
    needed.push_back(word.back() != '?' && word.back() != '!');
    refused.push_back(word.back() == '!');
    if (!needed.back()) word.remove_suffix(1);
    names.push_back(by_place_alone ? std::string_view() : word);
  }
  bound.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return invalid_argument(name, ": expected at most ", names.size(), " arguments, found ",
                            arguments.positional.size());
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.values_.begin());
  for (auto& [key, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), std::string_view(key));
    if (place == names.end()) return invalid_argument(name, ": there is no argument '", key, "'");
    auto& slot = bound.values_[static_cast<std::size_t>(place - names.begin())];
    if (slot) return invalid_argument(name, ": the argument '", key, "' is given twice");
    slot = std::move(value);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (refused[i] && bound.values_[i]) return unimplemented(name, ": argument ", i + 1, " is not supported");
    if (needed[i] && !bound.values_[i]) return invalid_argument(name, ": argument ", i + 1, " is missing");
  }
  return bound;
}

absl::StatusOr<std::optional<std::int64_t>> Bound::integer(std::size_t i) const {
  if (!values_[i] || values_[i]->is(Kind::kNone)) return std::nullopt;
  if (const auto index = values_[i]->index()) return index;
  if (values_[i]->is(Kind::kUndefined)) return values_[i]->undefined_error();
  return invalid_argument(name_, ": argument ", i + 1, ": expected an integer, found ", values_[i]->type());
}

absl::StatusOr<std::optional<std::string>> Bound::text(std::size_t i) const {
  if (!values_[i] || values_[i]->is(Kind::kNone)) return std::nullopt;
  if (values_[i]->is(Kind::kText)) return values_[i]->text();
  if (values_[i]->is(Kind::kUndefined)) return values_[i]->undefined_error();
  return invalid_argument(name_, ": argument ", i + 1, ": expected a text, found ", values_[i]->type());
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr || in(open_filters(), name) != nullptr; }
bool is_test(std::string_view name) { return in(tests(), name) != nullptr; }

absl::StatusOr<Value> apply_filter(Machine& machine, std::string_view name, const Value& value, Arguments arguments) {
  if (const OpenFilter* open = in(open_filters(), name)) return open->run(machine, value, std::move(arguments));
  const Filter* filter = find_filter(name);
  if (filter == nullptr) return unimplemented("the filter '", name, "' is not supported");
  BASCULE_ASSIGN(const Bound bound, Bound::bind(name, filter->parameters, std::move(arguments)));
  return filter->run(machine, value, bound);
}

absl::StatusOr<bool> apply_test(Machine& machine, std::string_view name, const Value& value, Arguments arguments) {
  const Test* test = in(tests(), name);
  if (test == nullptr) return unimplemented("the test '", name, "' is not supported");
  BASCULE_ASSIGN(const Bound bound, Bound::bind(name, test->parameters, std::move(arguments)));
  return test->run(machine, value, bound);
}

namespace {

absl::StatusOr<Value> raise_exception(Machine& machine, const Arguments& arguments) {
  BASCULE_ASSIGN(const Bound bound, Bound::bind("raise_exception", "message", arguments));
  BASCULE_ASSIGN(const std::string message, to_text(machine, *bound.find(0)));
  return invalid_argument("it refuses the conversation: ", message);
}

// In local time, like Python's datetime without a zone: %f is microseconds, %z and %Z are empty.
absl::StatusOr<Value> strftime_now(Machine& machine, const Arguments& arguments) {
  BASCULE_ASSIGN(const Bound bound, Bound::bind("strftime_now", "format", arguments));
  BASCULE_ASSIGN(const auto given, bound.text(0));
  if (!given) return invalid_argument("strftime_now: expected a format, found None");
  constexpr std::size_t kMaxFormat = 1000;
  if (given->size() > kMaxFormat) return invalid_argument("strftime_now: expected a format of at most 1000 bytes");
  const auto now = machine.now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return invalid_argument("strftime_now: the clock is out of range");
  std::string format;
  for (std::size_t i = 0; i < given->size(); ++i) {
    const char next = (*given)[i] == '%' && i + 1 < given->size() ? (*given)[i + 1] : ' ';
    if (next == 'f') {
      std::array<char, 16> digits{};
      std::snprintf(digits.data(), digits.size(), "%06d", static_cast<int>(microseconds));
      format += digits.data();
    } else if (next != 'z' && next != 'Z') {
      format += (*given)[i];
      if (next != ' ') format += next;
    }
    if ((*given)[i] == '%' && next != ' ') ++i;
  }
  if (format.empty()) return Value::of("");
  std::array<char, 64 * kMaxFormat> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), format.c_str(), &local);
  return Value::of(std::string(text.data(), length));
}

absl::StatusOr<Value> range(Machine&, const Arguments& arguments) {
  BASCULE_ASSIGN(const Bound bound, Bound::bind("range", "/ start stop? step?", arguments));
  std::array<std::int64_t, 3> numbers = {0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (bound.find(i) == nullptr) continue;
    BASCULE_ASSIGN(const auto number, bound.integer(i));
    if (!number) return invalid_argument("range: expected integers, found None");
    numbers[i] = *number;
  }
  if (bound.find(1) == nullptr) std::swap(numbers[0], numbers[1]);
  const Range range{numbers[0], numbers[1], numbers[2]};
  constexpr std::int64_t kMaxItems = 100000;  // as in Jinja2
  if (range.step == 0) return invalid_argument("range: the step cannot be 0");
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  for (const std::int64_t number : numbers) {
    if (number > kFar || number < -kFar) return unimplemented("range: such large numbers are not supported");
  }
  if (range.size() > kMaxItems)
    return invalid_argument("range: expected at most ", kMaxItems, " items, found ", range.size());
  return Value::of(range);
}

// dict() takes a dict or pairs, and arguments by name.
absl::StatusOr<Dict> make_dict(Machine& machine, std::string_view name, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return invalid_argument(name, ": expected at most one argument by place");
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (from.is(Kind::kDict)) {
      dict = *from.dict();
      BASCULE_TRY(machine.charge(dict.items.size()));
    } else {
      BASCULE_ASSIGN(const std::vector<Value> pairs, to_items(machine, from));
      for (const Value& pair : pairs) {
        BASCULE_ASSIGN(const std::vector<Value> two, to_items(machine, pair));
        if (two.size() != 2) return invalid_argument(name, ": expected pairs, found ", two.size(), " items");
        BASCULE_TRY(dict.set(machine, two[0], two[1]));
      }
    }
  }
  for (const auto& [key, value] : arguments.named) BASCULE_TRY(dict.set(machine, Value::of(key), value));
  return dict;
}

absl::StatusOr<Value> dict(Machine& machine, const Arguments& arguments) {
  BASCULE_ASSIGN(Dict dict, make_dict(machine, "dict", arguments));
  return Value::of(std::make_shared<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> make_namespace(Machine& machine, const Arguments& arguments) {
  BASCULE_ASSIGN(Dict attributes, make_dict(machine, "namespace", arguments));
  for (const auto& [name, value] : attributes.items) {
    if (name.is(Kind::kText) && name.text().starts_with("_")) {
      return invalid_argument("namespace: a name cannot begin with an underscore, found '", name.text(), "'");
    }
  }
  BASCULE_TRY(machine.charge(8));
  Namespace* space = machine.make_namespace();
  space->attributes = std::move(attributes);
  return Value::of(space);
}

}  // namespace

bool is_unknown_global(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "self";
}

const Function* find_function(std::string_view name) {
  static const auto* table = new std::vector<Function>{{"raise_exception", raise_exception},
                                                       {"strftime_now", strftime_now},
                                                       {"range", range},
                                                       {"dict", dict},
                                                       {"namespace", make_namespace}};
  for (const Function& function : *table) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace bascule::ref::jinja
