// Filters over iterables.
#include <algorithm>
#include <functional>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/getter.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/percent.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

absl::StatusOr<Value> length(Machine& machine, const Value& value, const Bound&) {
  if (value.is(Kind::kText)) BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_ASSIGN(const std::int64_t number, length_of(value));
  return Value::of(number);
}

absl::StatusOr<Value> first(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const Iterator next, iterate(machine, value));
  BASCULE_ASSIGN(const std::optional<Value> item, next());
  return item ? *item : Value::undefined("there is no first item: the sequence is empty");
}

// reversed(), which needs to know where the end is. Returns nullopt if Python refuses.
absl::StatusOr<std::optional<std::vector<Value>>> backwards(Machine& machine, const Value& value) {
  if (!is_iterable(value) || value.is(Kind::kGenerator) || value.is(Kind::kLoop)) return std::nullopt;
  BASCULE_ASSIGN(std::vector<Value> items, to_items(machine, value));
  std::reverse(items.begin(), items.end());
  return items;
}

absl::StatusOr<Value> last(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const auto items, backwards(machine, value));
  if (!items) return invalid_argument("last: '", value.type(), "' has no last item; make it a list");
  return items->empty() ? Value::undefined("there is no last item: the sequence is empty") : items->front();
}

absl::StatusOr<Value> reverse(Machine& machine, const Value& value, const Bound&) {
  if (value.is(Kind::kText)) {
    BASCULE_TRY(machine.charge_bytes(value.text().size()));
    std::string text;
    const auto offsets = code_point_offsets(value.text());
    for (std::size_t i = offsets.size() - 1; i > 0; --i) {
      text.append(value.text(), offsets[i - 1], offsets[i] - offsets[i - 1]);
    }
    return Value::of(std::move(text), value.is_safe());
  }
  BASCULE_ASSIGN(auto items, backwards(machine, value));
  if (!items) {
    BASCULE_ASSIGN(std::vector<Value> all, to_items(machine, value));
    std::reverse(all.begin(), all.end());
    return Value::list(std::move(all));
  }
  const Value list = Value::list(*std::move(items));
  BASCULE_ASSIGN(Iterator next, iterate(machine, list));
  return to_generator(std::move(next), list);
}

absl::StatusOr<Value> list(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(std::vector<Value> items, to_items(machine, value));
  return Value::list(std::move(items));
}

absl::StatusOr<Value> items(Machine& machine, const Value& value, const Bound&) {
  // As in Jinja2, a value without pairs is an error only when the first one is taken.
  if (!value.is(Kind::kDict) && !value.is(Kind::kUndefined)) {
    const std::string type = value.type();
    return to_generator(
        [type]() -> absl::StatusOr<std::optional<Value>> {
          return invalid_argument("items: expected a dict, found ", type);
        },
        value);
  }
  const Value pairs = value.is(Kind::kDict) ? Value::of(View{View::kItems, value.dict()}) : Value();
  BASCULE_ASSIGN(Iterator next, iterate(machine, pairs));
  return to_generator(std::move(next), value);
}

absl::StatusOr<Value> join(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const std::string separator, to_text(machine, arguments.get(0, Value::of(""))));
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(1)));
  BASCULE_ASSIGN(const Iterator next, iterate(machine, value));
  std::string text;
  for (bool is_first = true;; is_first = false) {
    BASCULE_ASSIGN(const std::optional<Value> item, next());
    if (!item) break;
    BASCULE_ASSIGN(const Value part, getter(*item));
    BASCULE_ASSIGN(const std::string part_text, to_text(machine, part));
    if (!is_first) text += separator;
    text += part_text;
    BASCULE_TRY(machine.charge(separator.size() / 64 + 1));
  }
  BASCULE_TRY(machine.charge_bytes(text.size()));
  return Value::of(std::move(text));
}

absl::StatusOr<Value> default_of(Machine&, const Value& value, const Bound& arguments) {
  const bool missing = value.is(Kind::kUndefined) || (arguments.flag(1) && !value.truth());
  return missing ? arguments.get(0, Value::of("")) : value;
}

absl::StatusOr<Value> sum(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(0)));
  Value total = arguments.get(1, Value::of(std::int64_t{0}));
  if (total.is(Kind::kText)) return invalid_argument("sum: texts are not added; use join");
  BASCULE_ASSIGN(const Iterator next, iterate(machine, value));
  while (true) {
    BASCULE_ASSIGN(const std::optional<Value> item, next());
    if (!item) return total;
    BASCULE_TRY(machine.charge(1));
    BASCULE_ASSIGN(const Value part, getter(*item));
    BASCULE_ASSIGN(total, compute(machine, Operator::kAdd, total, part));
  }
}

// map, select, reject, selectattr and rejectattr are lazy: they return an iterator, and errors come when it is read.
//
// Yields the result of `apply` for each item, and leaves an item out if the result is nullopt. `prepare` makes `apply`
// before the first item is read.
using Apply = std::function<absl::StatusOr<std::optional<Value>>(const Value& item)>;

Value lazily(Machine& machine, const Value& value, std::function<absl::StatusOr<Apply>()> prepare) {
  struct State {
    std::function<absl::StatusOr<Apply>()> prepare;
    Apply apply;
    Iterator source;
  };
  const auto state = std::make_shared<State>(State{std::move(prepare), nullptr, nullptr});
  return to_generator(
      [&machine, value, state]() -> absl::StatusOr<std::optional<Value>> {
        if (!state->source) {
          if (!value.truth()) return std::nullopt;
          BASCULE_ASSIGN(state->apply, state->prepare());
          BASCULE_ASSIGN(state->source, iterate(machine, value));
        }
        while (true) {
          BASCULE_TRY(machine.charge(1));
          BASCULE_ASSIGN(const std::optional<Value> item, state->source());
          if (!item) return std::nullopt;
          BASCULE_ASSIGN(std::optional<Value> result, state->apply(*item));
          if (result) return result;
        }
      },
      value);
}

absl::StatusOr<Apply> prepare_map(Machine& machine, const Arguments& arguments) {
  const auto named = [&](std::string_view name) {
    return std::find_if(arguments.named.begin(), arguments.named.end(), [&](auto& each) { return each.first == name; });
  };
  if (const auto path = named("attribute"); arguments.positional.empty() && path != arguments.named.end()) {
    const auto otherwise = named("default");
    const bool has_default = otherwise != arguments.named.end();
    if (arguments.named.size() > (has_default ? 2u : 1u)) return invalid_argument("map: unexpected argument");
    const bool is_none = !has_default || otherwise->second.is(Kind::kNone);  // None counts as missing
    BASCULE_ASSIGN(Getter getter, make_getter(machine, &path->second,
                                              is_none ? std::nullopt : std::optional<Value>(otherwise->second)));
    return Apply([getter = std::move(getter)](const Value& item) -> absl::StatusOr<std::optional<Value>> {
      BASCULE_ASSIGN(Value value, getter(item));
      return std::optional<Value>(std::move(value));
    });
  }
  if (arguments.positional.empty()) return invalid_argument("map: expected a filter or attribute=");
  if (!arguments.positional.front().is(Kind::kText)) return invalid_argument("map: expected the name of a filter");
  const std::string name = arguments.positional.front().text();
  if (!is_filter(name)) return unimplemented("map: the filter '", name, "' is not supported");
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  return Apply([&machine, name, rest](const Value& item) -> absl::StatusOr<std::optional<Value>> {
    BASCULE_ASSIGN(Value value, apply_filter(machine, name, item, rest));
    return std::optional<Value>(std::move(value));
  });
}

absl::StatusOr<Apply> prepare_select(Machine& machine, Arguments arguments, bool by_attribute, bool keep) {
  Getter getter;
  if (by_attribute) {
    if (arguments.positional.empty()) return invalid_argument("expected the name of an attribute, found none");
    const Value path = arguments.positional.front();
    arguments.positional.erase(arguments.positional.begin());
    BASCULE_ASSIGN(getter, make_getter(machine, &path));
  } else {
    BASCULE_ASSIGN(getter, make_getter(machine, nullptr));
  }
  std::string name;
  if (!arguments.positional.empty()) {
    if (!arguments.positional.front().is(Kind::kText)) return invalid_argument("expected the name of a test");
    name = arguments.positional.front().text();
    if (!is_test(name)) return unimplemented("the test '", name, "' is not supported");
    arguments.positional.erase(arguments.positional.begin());
  }
  return Apply(
      [=, &machine, arguments = std::move(arguments)](const Value& item) -> absl::StatusOr<std::optional<Value>> {
        BASCULE_ASSIGN(const Value looked_at, getter(item));
        bool holds = name.empty() && looked_at.truth();
        if (!name.empty()) {
          BASCULE_ASSIGN(holds, apply_test(machine, name, looked_at, arguments));
        }
        return holds == keep ? std::optional<Value>(item) : std::nullopt;
      });
}

absl::StatusOr<Value> map(Machine& machine, const Value& value, Arguments arguments) {
  return lazily(machine, value,
                [&machine, arguments = std::move(arguments)] { return prepare_map(machine, arguments); });
}

template <bool by_attribute, bool keep>
absl::StatusOr<Value> select(Machine& machine, const Value& value, Arguments arguments) {
  return lazily(machine, value, [&machine, arguments = std::move(arguments)] {
    return prepare_select(machine, arguments, by_attribute, keep);
  });
}

// The operator %, as a filter.
absl::StatusOr<Value> format(Machine& machine, const Value& value, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    return invalid_argument("format: expected arguments by place or by name, found both");
  if (value.is_safe()) return unimplemented("format: a text that was marked safe is not supported");
  BASCULE_ASSIGN(const std::string text, to_text(machine, value));
  if (arguments.named.empty()) return format_percent(machine, text, Value::tuple(std::move(arguments.positional)));
  std::vector<std::pair<Value, Value>> items;
  for (auto& [name, item] : arguments.named) items.emplace_back(Value::of(name), std::move(item));
  return format_percent(machine, text, Value::dict(std::move(items)));
}

}  // namespace

const std::vector<Filter>& list_filters() {
  static const auto* table = new std::vector<Filter>{
      {"length", "", length},
      {"count", "", length},
      {"first", "", first},
      {"last", "", last},
      {"reverse", "", reverse},
      {"list", "", list},
      {"items", "", items},
      {"join", "d? attribute?", join},
      {"sum", "attribute? start?", sum},
      {"default", "default_value? boolean?", default_of},
      {"d", "default_value? boolean?", default_of},
  };
  return *table;
}

const std::vector<OpenFilter>& open_filters() {
  static const auto* table = new std::vector<OpenFilter>{{"map", map},
                                                         {"format", format},
                                                         {"select", select<false, true>},
                                                         {"reject", select<false, false>},
                                                         {"selectattr", select<true, true>},
                                                         {"rejectattr", select<true, false>}};
  return *table;
}

}  // namespace bascule::ref::jinja
