#include <bascule/trainer_ref/chat/iterate.h>

#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

// Iterates over `size` items; `at` returns one by its index.
template <typename At>
Iterator over(std::size_t size, At at) {
  return [size, at = std::move(at), i = std::size_t{0}]() mutable -> absl::StatusOr<std::optional<Value>> {
    if (i == size) return std::nullopt;
    return std::optional<Value>(at(i++));
  };
}

}  // namespace

Value item_of(const View& view, std::size_t i) {
  const auto& [key, value] = view.dict->items[i];
  return view.part == View::kKeys ? key : view.part == View::kValues ? value : Value::tuple({key, value});
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kLoop:
    case Kind::kGenerator: return true;
    default: return false;
  }
}

absl::StatusOr<Iterator> iterate(Machine& machine, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return over(0, [](std::size_t) { return Value(); });
    case Kind::kText: {
      BASCULE_TRY(machine.charge_bytes(value.text().size()));
      auto offsets = code_point_offsets(value.text());
      const std::size_t size = offsets.size() - 1;
      return over(size, [value, offsets = std::move(offsets)](std::size_t i) {
        return Value::of(value.text().substr(offsets[i], offsets[i + 1] - offsets[i]));
      });
    }
    case Kind::kList:
    case Kind::kTuple: return over(value.items().size(), [value](std::size_t i) { return value.items()[i]; });
    case Kind::kDict:
      return over(value.dict()->items.size(), [value](std::size_t i) { return value.dict()->items[i].first; });
    case Kind::kView:
      return over(value.view().dict->items.size(), [value](std::size_t i) { return item_of(value.view(), i); });
    case Kind::kRange:
      return over(static_cast<std::size_t>(value.range().size()),
                  [value](std::size_t i) { return Value::of(value.range().at(static_cast<std::int64_t>(i))); });
    case Kind::kGenerator: {
      return Iterator([value] { return value.generator().next(); });
    }
    case Kind::kLoop: return unimplemented("iterating over the variable loop is not supported");
    default: return invalid_argument("'", value.type(), "' is not iterable");
  }
}

absl::StatusOr<std::vector<Value>> to_items(Machine& machine, const Value& value) {
  if (value.is_sequence()) {
    BASCULE_TRY(machine.charge(value.items().size()));
    return value.items();
  }
  BASCULE_ASSIGN(Iterator next, iterate(machine, value));
  std::vector<Value> items;
  while (true) {
    BASCULE_ASSIGN(std::optional<Value> item, next());
    if (!item) return items;
    BASCULE_TRY(machine.charge(1));
    items.push_back(*std::move(item));
  }
}

absl::StatusOr<std::int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kText: return count_code_points(value.text());
    case Kind::kList:
    case Kind::kTuple: return static_cast<std::int64_t>(value.items().size());
    case Kind::kDict: return static_cast<std::int64_t>(value.dict()->items.size());
    case Kind::kView: return static_cast<std::int64_t>(value.view().dict->items.size());
    case Kind::kRange: return value.range().size();
    case Kind::kLoop: return value.loop()->length();
    default: return invalid_argument("'", value.type(), "' has no length");
  }
}

Value to_generator(Iterator next, const Value& over) {
  return Value::of(std::make_shared<Generator>(Generator{std::move(next), over.nesting() + 1}));
}

}  // namespace bascule::ref::jinja
