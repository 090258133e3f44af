// Filters that compare items: sort, unique, min, max, dictsort. Texts differ by case only if the template asks for it.
#include <algorithm>

#include <bascule/trainer_ref/chat/attribute_path.h>
#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

absl::StatusOr<Value> key_of(Machine& machine, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::kText)) return value;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_TRY(check_case(value.text()));
  return Value::of(lower(value.text()));
}

struct Keyed {
  Value key, item;
};

// A merge sort: std::stable_sort may not see an order that fails half-way, or one that is none (nan).
absl::Status sort_keyed(Machine& machine, std::vector<Keyed>& items, bool reverse) {
  std::vector<Keyed> from = std::move(items), to(from.size());
  for (std::size_t width = 1; width < from.size(); width *= 2) {
    for (std::size_t begin = 0; begin < from.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, from.size()), end = std::min(begin + 2 * width, from.size());
      std::size_t left = begin, right = middle;
      for (std::size_t i = begin; i < end; ++i) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value &l = from[left].key, &r = from[right].key;
          BASCULE_ASSIGN(take_right, reverse ? less(machine, l, r) : less(machine, r, l));
        }
        to[i] = std::move(take_right ? from[right++] : from[left++]);
      }
    }
    std::swap(from, to);
  }
  items = std::move(from);
  return absl::OkStatus();
}

Value items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

absl::StatusOr<Value> sort(Machine& machine, const Value& value, const Bound& arguments) {
  // "age,name": by several attributes
  std::vector<Getter> getters;
  const Value* attribute = arguments.find(2);
  if (attribute != nullptr && attribute->is(Kind::kText)) {
    std::string_view rest = attribute->text();
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      const Value name = Value::of(rest.substr(0, comma));
      BASCULE_ASSIGN(Getter getter, make_getter(machine, &name));
      getters.push_back(std::move(getter));
      more = comma != std::string_view::npos;
      if (more) rest.remove_prefix(comma + 1);
    }
  } else {
    BASCULE_ASSIGN(Getter getter, make_getter(machine, attribute));
    getters.push_back(std::move(getter));
  }
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    std::vector<Value> keys;
    for (const Getter& getter : getters) {
      BASCULE_ASSIGN(const Value part, getter(item));
      BASCULE_ASSIGN(Value key, key_of(machine, part, arguments.flag(1)));
      keys.push_back(std::move(key));
    }
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  BASCULE_TRY(sort_keyed(machine, keyed, arguments.flag(0)));
  return items_of(std::move(keyed));
}

absl::StatusOr<Value> dictsort(Machine& machine, const Value& value, const Bound& arguments) {
  const Value by = arguments.get(1, Value::of("key"));
  const bool by_key = by.is(Kind::kText) && by.text() == "key";
  if (!by_key && !(by.is(Kind::kText) && by.text() == "value")) {
    return invalid_argument("dictsort: expected 'key' or 'value' to sort by");
  }
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kDict)) return invalid_argument("dictsort: expected a dict, found ", value.type());
  std::vector<Keyed> keyed;
  for (const auto& [name, item] : value.dict()->items) {
    BASCULE_ASSIGN(Value key, key_of(machine, by_key ? name : item, arguments.flag(0)));
    keyed.push_back({std::move(key), Value::tuple({name, item})});
  }
  BASCULE_TRY(sort_keyed(machine, keyed, arguments.flag(2)));
  return items_of(std::move(keyed));
}

template <bool is_max>
absl::StatusOr<Value> extreme(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(1)));
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
  if (items.empty()) return Value::undefined("there is no smallest or largest item: the sequence is empty");
  std::optional<Keyed> best;
  for (const Value& item : items) {
    BASCULE_ASSIGN(const Value part, getter(item));
    BASCULE_ASSIGN(Value key, key_of(machine, part, arguments.flag(0)));
    if (best) {
      BASCULE_ASSIGN(const bool is_better, is_max ? less(machine, best->key, key) : less(machine, key, best->key));
      if (!is_better) continue;
    }
    best = Keyed{std::move(key), item};
  }
  return best->item;
}

absl::StatusOr<Value> unique(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const Getter getter, make_getter(machine, arguments.find(1)));
  BASCULE_ASSIGN(const Iterator source, iterate(machine, value));
  return to_generator(
      [&machine, source, getter, case_sensitive = arguments.flag(0),
       seen = Dict()]() mutable -> absl::StatusOr<std::optional<Value>> {
        while (true) {
          BASCULE_ASSIGN(std::optional<Value> item, source());
          if (!item) return std::nullopt;
          BASCULE_ASSIGN(const Value part, getter(*item));
          BASCULE_ASSIGN(const Value key, key_of(machine, part, case_sensitive));
          BASCULE_ASSIGN(const Value* known, seen.find(machine, key));
          if (known != nullptr) continue;
          BASCULE_TRY(seen.set(machine, key, Value::none()));
          return item;
        }
      },
      value);
}

}  // namespace

const std::vector<Filter>& order_filters() {
  static const auto* table = new std::vector<Filter>{
      {"sort", "reverse? case_sensitive? attribute?", sort}, {"dictsort", "case_sensitive? by? reverse?", dictsort},
      {"min", "case_sensitive? attribute?", extreme<false>}, {"max", "case_sensitive? attribute?", extreme<true>},
      {"unique", "case_sensitive? attribute?", unique},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
