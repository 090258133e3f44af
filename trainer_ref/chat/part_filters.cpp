// Filters that cut a sequence into lists: batch and slice. Both are lazy, as in Jinja2: errors come when the iterator
// is read.
#include <memory>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

using Lists = std::vector<Value>;

absl::Status fill(Machine& machine, const Value& with, std::size_t size, std::vector<Value>& list) {
  if (with.is(Kind::kNone) || list.size() >= size) return absl::OkStatus();
  BASCULE_TRY(machine.charge(size - list.size()));
  list.resize(size, with);
  return absl::OkStatus();
}

// Lists of `count` items each; the last is filled up, unless `with` is None.
absl::StatusOr<Lists> batches(Machine& machine, const std::vector<Value>& items, std::int64_t count,
                              const Value& with) {
  Lists lists;
  std::vector<Value> list;
  for (const Value& item : items) {
    if (static_cast<std::int64_t>(list.size()) == count) lists.push_back(Value::list(std::exchange(list, {})));
    list.push_back(item);
  }
  if (list.empty()) return lists;
  BASCULE_TRY(fill(machine, with, count > 0 ? static_cast<std::size_t>(count) : 0, list));
  lists.push_back(Value::list(std::move(list)));
  return lists;
}

// `count` lists, of which the first ones have one item more if that is needed; then the others get `with`, unless it is
// None.
absl::StatusOr<Lists> slices(Machine& machine, const std::vector<Value>& items, std::int64_t count, const Value& with) {
  if (count == 0) return invalid_argument("slice: division by zero");
  Lists lists;
  if (count < 0) return lists;
  BASCULE_TRY(machine.charge(static_cast<std::uint64_t>(count)));
  const auto parts = static_cast<std::size_t>(count);
  const std::size_t each = items.size() / parts, longer = items.size() % parts;
  auto next = items.begin();
  for (std::size_t i = 0; i < parts; ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> list(std::exchange(next, end), end);
    if (i >= longer) BASCULE_TRY(fill(machine, with, each + 1, list));
    lists.push_back(Value::list(std::move(list)));
  }
  return lists;
}

using Cut = absl::StatusOr<Lists>(Machine& machine, const std::vector<Value>& items, std::int64_t count,
                                  const Value& with);

template <Cut cut>
absl::StatusOr<Value> parts(Machine& machine, const Value& value, const Bound& arguments) {
  const auto source = std::make_shared<Iterator>();
  return to_generator(
      [&machine, value, arguments, source]() -> absl::StatusOr<std::optional<Value>> {
        if (!*source) {
          BASCULE_ASSIGN(const std::optional<std::int64_t> count, arguments.integer(0));
          if (!count) return unimplemented("batch and slice: a number of None is not supported");
          BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, value));
          BASCULE_ASSIGN(Lists lists, cut(machine, items, *count, arguments.get(1, Value::none())));
          BASCULE_ASSIGN(*source, iterate(machine, Value::list(std::move(lists))));
        }
        return (*source)();
      },
      Value::list({value}));
}

}  // namespace

const std::vector<Filter>& part_filters() {
  static const auto* table = new std::vector<Filter>{{"batch", "linecount fill_with?", parts<batches>},
                                                     {"slice", "slices fill_with?", parts<slices>}};
  return *table;
}

}  // namespace bascule::ref::jinja
