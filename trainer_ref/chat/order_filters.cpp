// Filters that put items in order or compare them: sort, dictsort, unique, groupby, min, max.
#include <algorithm>
#include <memory>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/getter.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

struct Keyed {
  Value key, item;
};

// sorted(): items with equal keys keep their order, even in reverse.
absl::StatusOr<std::vector<Keyed>> sorted(Machine& machine, std::vector<Keyed> items, bool reverse) {
  absl::Status failed;
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& left, const Keyed& right) {
    if (!failed.ok()) return false;
    const auto is_less = reverse ? less(machine, right.key, left.key) : less(machine, left.key, right.key);
    if (!is_less.ok()) failed = is_less.status();
    return is_less.ok() && *is_less;
  });
  if (!failed.ok()) return failed;
  return items;
}

absl::StatusOr<Value> key_of(Machine& machine, const Value& value, bool case_sensitive) {
  return case_sensitive ? absl::StatusOr<Value>(value) : without_case(machine, value);
}

absl::StatusOr<Value> sort(Machine& machine, const Value& value, const Bound& arguments) {
  const bool reverse = arguments.flag(0), case_sensitive = arguments.flag(1);
  BASCULE_ASSIGN(const Getter getter, make_list_getter(machine, arguments.find(2)));
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) {
    BASCULE_ASSIGN(const Value parts, getter(item));
    std::vector<Value> keys;
    keys.reserve(parts.items().size());
    for (const Value& part : parts.items()) {
      BASCULE_ASSIGN(Value key, key_of(machine, part, case_sensitive));
      keys.push_back(std::move(key));
    }
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  BASCULE_ASSIGN(const std::vector<Keyed> in_order, sorted(machine, std::move(keyed), reverse));
  std::vector<Value> list;
  list.reserve(in_order.size());
  for (const Keyed& each : in_order) list.push_back(each.item);
  return Value::list(std::move(list));
}

absl::StatusOr<Value> dictsort(Machine& machine, const Value& value, const Bound& arguments) {
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kDict)) return invalid_argument("dictsort: expected a dict, found ", value.type());
  BASCULE_ASSIGN(const auto by, arguments.text(1));
  if (arguments.find(1) != nullptr && by != "key" && by != "value")
    return invalid_argument("dictsort: expected by='key' or by='value'");
  std::vector<Keyed> keyed;
  keyed.reserve(value.dict()->items.size());
  for (const auto& [name, item] : value.dict()->items) {
    BASCULE_TRY(machine.charge(1));
    BASCULE_ASSIGN(Value key, key_of(machine, by == "value" ? item : name, arguments.flag(0)));
    keyed.push_back({std::move(key), Value::tuple({name, item})});
  }
  BASCULE_ASSIGN(const std::vector<Keyed> in_order, sorted(machine, std::move(keyed), arguments.flag(2)));
  std::vector<Value> list;
  list.reserve(in_order.size());
  for (const Keyed& each : in_order) list.push_back(each.item);
  return Value::list(std::move(list));
}

// Lazy, as in Jinja2: errors come when the iterator is read.
absl::StatusOr<Value> unique(Machine& machine, const Value& value, const Bound& arguments) {
  struct State {
    Getter getter;
    Iterator source;
    std::vector<Value> seen;
  };
  const auto state = std::make_shared<State>();
  const bool case_sensitive = arguments.flag(0);
  const Value path = arguments.get(1, Value::none());
  return to_generator(
      [&machine, value, path, case_sensitive, state]() -> absl::StatusOr<std::optional<Value>> {
        if (!state->source) {
          BASCULE_ASSIGN(state->getter, make_getter(machine, &path));
          BASCULE_ASSIGN(state->source, iterate(machine, value));
        }
        while (true) {
          BASCULE_ASSIGN(std::optional<Value> item, state->source());
          if (!item) return std::nullopt;
          BASCULE_ASSIGN(const Value looked_at, state->getter(*item));
          BASCULE_ASSIGN(Value key, key_of(machine, looked_at, case_sensitive));
          BASCULE_TRY(check_hashable(machine, key));
          bool is_seen = false;
          for (std::size_t i = 0; i < state->seen.size() && !is_seen; ++i) {
            BASCULE_ASSIGN(is_seen, equal(machine, state->seen[i], key));
          }
          if (is_seen) continue;
          state->seen.push_back(std::move(key));
          return item;
        }
      },
      value);
}

// The least or the greatest item; of equal ones the first.
template <bool greatest>
absl::StatusOr<Value> extreme(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(1)));
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
  if (items.empty()) return Value::undefined("there is no such item: the sequence is empty");
  std::optional<Keyed> best;
  for (const Value& item : items) {
    BASCULE_ASSIGN(const Value looked_at, getter(item));
    BASCULE_ASSIGN(Value key, key_of(machine, looked_at, arguments.flag(0)));
    bool is_better = !best;
    if (best) {
      BASCULE_ASSIGN(is_better, greatest ? less(machine, best->key, key) : less(machine, key, best->key));
    }
    if (is_better) best = Keyed{std::move(key), item};
  }
  return best->item;
}

// Pairs of a value of the attribute and the list of its items.
absl::StatusOr<Value> groupby(Machine& machine, const Value& value, const Bound& arguments) {
  std::optional<Value> otherwise;
  if (const Value* given = arguments.find(1); given != nullptr && !given->is(Kind::kNone)) otherwise = *given;
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(0), otherwise));
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) {
    BASCULE_ASSIGN(const Value looked_at, getter(item));
    BASCULE_ASSIGN(Value key, key_of(machine, looked_at, arguments.flag(2)));
    keyed.push_back({std::move(key), item});
  }
  BASCULE_ASSIGN(keyed, sorted(machine, std::move(keyed), /*reverse=*/false));
  std::vector<Value> groups;
  for (std::size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> members;
    for (bool is_same = true; is_same; ++end) {
      members.push_back(keyed[end].item);
      is_same = end + 1 < keyed.size();
      if (is_same) {
        BASCULE_ASSIGN(is_same, equal(machine, keyed[begin].key, keyed[end + 1].key));
      }
    }
    BASCULE_ASSIGN(Value name, getter(members.front()));  // as it is written in the first item
    groups.push_back(Value::tuple({std::move(name), Value::list(std::move(members))}));
  }
  return Value::list(std::move(groups));
}

}  // namespace

const std::vector<Filter>& order_filters() {
  static const auto* table = new std::vector<Filter>{
      {"sort", "reverse? case_sensitive? attribute?", sort}, {"dictsort", "case_sensitive? by? reverse?", dictsort},
      {"unique", "case_sensitive? attribute?", unique},      {"min", "case_sensitive? attribute?", extreme<false>},
      {"max", "case_sensitive? attribute?", extreme<true>},  {"groupby", "attribute default? case_sensitive?", groupby},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
