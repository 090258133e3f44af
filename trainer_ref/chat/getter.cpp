#include <bascule/trainer_ref/chat/getter.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/texts.h>

namespace bascule::ref::jinja {
namespace {

// The parts of a path between its dots; digits are an index.
std::vector<Value> parts_of(std::string_view path) {
  std::vector<Value> parts;
  while (true) {
    const std::string_view part = path.substr(0, path.find('.'));
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    std::int64_t number = 0;
    if (is_number && std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc()) {
      parts.push_back(Value::of(number));
    } else {
      parts.push_back(Value::of(part));
    }
    if (part.size() == path.size()) return parts;
    path.remove_prefix(part.size() + 1);
  }
}

}  // namespace

absl::StatusOr<Getter> make_getter(Machine& machine, const Value* path, const std::optional<Value>& otherwise) {
  std::vector<Value> parts;
  if (path != nullptr && path->is(Kind::kText)) {
    parts = parts_of(path->text());
  } else if (path != nullptr && !path->is(Kind::kNone)) {
    parts.push_back(*path);
  }
  return Getter([&machine, parts, otherwise](const Value& item) -> absl::StatusOr<Value> {
    Value value = item;
    for (const Value& part : parts) {
      BASCULE_ASSIGN(value, subscript(machine, value, part));
      if (otherwise && value.is(Kind::kUndefined)) value = *otherwise;
    }
    return value;
  });
}

absl::StatusOr<Getter> make_list_getter(Machine& machine, const Value* paths) {
  std::vector<Getter> getters;
  if (paths == nullptr || !paths->is(Kind::kText)) {
    BASCULE_ASSIGN(Getter getter, make_getter(machine, paths));
    getters.push_back(std::move(getter));
  } else {
    std::string_view rest = paths->text();
    while (true) {
      const std::string_view path = rest.substr(0, rest.find(','));
      const Value name = Value::of(path);
      BASCULE_ASSIGN(Getter getter, make_getter(machine, &name));
      getters.push_back(std::move(getter));
      if (path.size() == rest.size()) break;
      rest.remove_prefix(path.size() + 1);
    }
  }
  return Getter([getters](const Value& item) -> absl::StatusOr<Value> {
    std::vector<Value> values;
    values.reserve(getters.size());
    for (const Getter& getter : getters) {
      BASCULE_ASSIGN(Value value, getter(item));
      values.push_back(std::move(value));
    }
    return Value::list(std::move(values));
  });
}

absl::StatusOr<Value> without_case(Machine& machine, const Value& value) {
  if (!value.is(Kind::kText)) return value;
  BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_ASSIGN(std::string lower, in_case(value.text(), Case::kLower));
  return Value::of(std::move(lower));
}

}  // namespace bascule::ref::jinja
