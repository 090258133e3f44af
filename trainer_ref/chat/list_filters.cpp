// Filters over what can be iterated.
#include <algorithm>

#include <bascule/trainer_ref/chat/attribute_path.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

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

// reversed(), which needs to know where the end is; none where Python refuses.
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
  if (total.is(Kind::kText)) return invalid_argument("sum: texts are not summed up; use join");
  BASCULE_ASSIGN(const Iterator next, iterate(machine, value));
  while (true) {
    BASCULE_ASSIGN(const std::optional<Value> item, next());
    if (!item) return total;
    BASCULE_ASSIGN(const Value term, getter(*item));
    BASCULE_ASSIGN(total, compute(machine, Operator::kAdd, total, term));
    BASCULE_TRY(machine.charge(1));
  }
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
      {"default", "default_value? boolean?", default_of},
      {"d", "default_value? boolean?", default_of},
      {"sum", "attribute? start?", sum},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
