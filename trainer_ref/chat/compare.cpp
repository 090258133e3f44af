#include <bascule/trainer_ref/chat/compare.h>

#include <algorithm>
#include <utility>

#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

// A long double holds every 64-bit integer, so comparisons with floats are exact.
long double exact(const Value& number) {
  const auto index = number.index();
  return index ? static_cast<long double>(*index) : static_cast<long double>(number.number());
}

absl::Status too_big_to_compare() {
  return unimplemented("comparing an integer that needs more than 64 bits is not supported");
}

absl::StatusOr<bool> equal_dicts(Machine& machine, const Dict& left, const Dict& right, int depth) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    BASCULE_ASSIGN(const Value* other, right.find(machine, key));
    if (other == nullptr) return false;
    BASCULE_ASSIGN(const bool same, equal(machine, value, *other, depth + 1));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> equal_ranges(const Range& left, const Range& right) {
  if (left.size() != right.size() || left.size() == 0) return left.size() == right.size();
  return left.start == right.start && (left.size() == 1 || left.step == right.step);
}

// keys() and items() compare as sets; values() equals only itself.
absl::StatusOr<bool> equal_views(Machine& machine, const View& left, const View& right, int depth) {
  if (left.part != right.part || left.part == View::kValues) return false;
  if (left.part == View::kItems) return equal_dicts(machine, *left.dict, *right.dict, depth);
  if (left.dict->items.size() != right.dict->items.size()) return false;
  for (const auto& [key, value] : left.dict->items) {
    BASCULE_ASSIGN(const Value* other, right.dict->find(machine, key));
    if (other == nullptr) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<bool> equal(Machine& machine, const Value& left, const Value& right, int depth) {
  if (depth > kMaxNesting) return invalid_argument("values that nest deeper than ", kMaxNesting, " are not compared");
  BASCULE_TRY(machine.charge(1));
  if (left.is_number() && right.is_number()) return exact(left) == exact(right);
  for (const auto& [side, other] : {std::pair(&left, &right), std::pair(&right, &left)})
    if (side->is(Kind::kBigInteger) && other->is(Kind::kFloat)) return too_big_to_compare();
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kText: return left.text() == right.text();
    case Kind::kBigInteger: return left.digits() == right.digits();
    case Kind::kList:
    case Kind::kTuple: {
      if (left.place() == right.place()) return true;
      if (left.items().size() != right.items().size()) return false;
      for (std::size_t i = 0; i < left.items().size(); ++i) {
        BASCULE_ASSIGN(const bool same, equal(machine, left.items()[i], right.items()[i], depth + 1));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kDict: return equal_dicts(machine, *left.dict(), *right.dict(), depth);
    case Kind::kView: return equal_views(machine, left.view(), right.view(), depth);
    case Kind::kRange: return equal_ranges(left.range(), right.range());
    case Kind::kMethod:
      return left.method().method == right.method().method && left.method().self.place() != nullptr &&
             left.method().self.place() == right.method().self.place();
    default: return left.place() == right.place();
  }
}

absl::StatusOr<bool> less(Machine& machine, const Value& left, const Value& right, int depth) {
  if (depth > kMaxNesting) return invalid_argument("values that nest deeper than ", kMaxNesting, " are not compared");
  BASCULE_TRY(machine.charge(1));
  for (const Value* side : {&left, &right}) {
    if (side->is(Kind::kUndefined)) return side->undefined_error();
  }
  if (left.is_number() && right.is_number()) return exact(left) < exact(right);
  if (left.is(Kind::kBigInteger) || right.is(Kind::kBigInteger)) return too_big_to_compare();
  if (left.is(Kind::kText) && right.is(Kind::kText))
    return left.text() < right.text();  // UTF-8 sorts as code points do
  if (left.is_sequence() && left.kind() == right.kind()) {
    const std::size_t shorter = std::min(left.items().size(), right.items().size());
    for (std::size_t i = 0; i < shorter; ++i) {
      BASCULE_ASSIGN(const bool same, equal(machine, left.items()[i], right.items()[i], depth + 1));
      if (!same) return less(machine, left.items()[i], right.items()[i], depth + 1);
    }
    return left.items().size() < right.items().size();
  }
  if (left.is(Kind::kView) || right.is(Kind::kView)) {
    return unimplemented("< between ", left.type(), " and ", right.type(), " is not supported here");
  }
  return invalid_argument("'<' is not supported between ", left.type(), " and ", right.type());
}

absl::StatusOr<bool> less_or_equal(Machine& machine, const Value& left, const Value& right) {
  BASCULE_ASSIGN(const bool is_less, less(machine, left, right));
  return is_less ? absl::StatusOr<bool>(true) : equal(machine, left, right);
}

absl::StatusOr<bool> contains(Machine& machine, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kText:
      if (!item.is(Kind::kText)) {
        return invalid_argument("'in' a text needs a text at its left, found ", item.type());
      }
      BASCULE_TRY(machine.charge_bytes(container.text().size()));
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict: {
      BASCULE_TRY(machine.charge(container.dict()->items.size()));
      BASCULE_ASSIGN(const Value* found, container.dict()->find(machine, item));
      return found != nullptr;
    }
    case Kind::kView:
      if (container.view().part == View::kKeys) return contains(machine, Value::of(container.view().dict), item);
      if (container.view().part == View::kItems) {
        if (!item.is(Kind::kTuple) || item.items().size() != 2) return false;
        BASCULE_ASSIGN(const Value* found, container.view().dict->find(machine, item.items()[0]));
        return found != nullptr ? equal(machine, *found, item.items()[1]) : absl::StatusOr<bool>(false);
      }
      [[fallthrough]];
    default: {
      BASCULE_ASSIGN(Iterator next, iterate(machine, container));
      while (true) {
        BASCULE_ASSIGN(const std::optional<Value> other, next());
        if (!other) return false;
        BASCULE_TRY(machine.charge(1));
        BASCULE_ASSIGN(const bool is_it, equal(machine, *other, item));
        if (is_it) return true;
      }
    }
  }
}

absl::Status check_hashable(Machine& machine, const Value& key) {
  if (key.is(Kind::kList) || key.is(Kind::kDict) || (key.is(Kind::kView) && key.view().part != View::kValues)) {
    return invalid_argument("a ", key.type(), " cannot be the key of a dict");
  }
  BASCULE_TRY(machine.charge(1));
  if (key.is(Kind::kTuple)) {
    for (const Value& item : key.items()) BASCULE_TRY(check_hashable(machine, item));
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref::jinja
