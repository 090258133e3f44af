#include <bascule/trainer_ref/chat/value.h>

#include <algorithm>
#include <limits>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

std::int64_t Range::size() const {
  const std::int64_t distance = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  return distance <= 0 ? 0 : (distance - 1) / stride + 1;
}

Value Value::undefined(std::string why) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(why))}));
}
Value Value::of(std::string text, bool is_safe) {
  return Value(Data(Text{std::make_shared<const std::string>(std::move(text)), is_safe}));
}
Value Value::of_digits(std::string digits) {
  return Value(Data(BigInteger{std::make_shared<const std::string>(std::move(digits))}));
}

namespace {
Sequence sequence_of(std::vector<Value> items, bool is_tuple) {
  int nesting = 0;
  for (const Value& item : items) nesting = std::max(nesting, item.nesting());
  return {std::move(items), is_tuple, nesting + 1};
}
}  // namespace

Value Value::list(std::vector<Value> items) {
  return Value(Data(std::make_shared<const Sequence>(sequence_of(std::move(items), false))));
}
Value Value::tuple(std::vector<Value> items) {
  return Value(Data(std::make_shared<const Sequence>(sequence_of(std::move(items), true))));
}
Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  int nesting = 0;
  for (const auto& [key, value] : items) nesting = std::max({nesting, key.nesting(), value.nesting()});
  return of(std::make_shared<const Dict>(Dict{std::move(items), nesting + 1}));
}

Kind Value::kind() const {
  static constexpr Kind kKinds[] = {Kind::kUndefined,  Kind::kNone,      Kind::kBool, Kind::kInteger, Kind::kFloat,
                                    Kind::kBigInteger, Kind::kText,      Kind::kList, Kind::kDict,    Kind::kView,
                                    Kind::kRange,      Kind::kNamespace, Kind::kLoop, Kind::kMacro,   Kind::kFunction,
                                    Kind::kMethod,     Kind::kGenerator};
  static_assert(std::size(kKinds) == std::variant_size_v<Data>);
  const Kind kind = kKinds[data_.index()];
  return kind == Kind::kList && std::get<std::shared_ptr<const Sequence>>(data_)->is_tuple ? Kind::kTuple : kind;
}

bool Value::is_number() const { return is(Kind::kBool) || is(Kind::kInteger) || is(Kind::kFloat); }

std::optional<std::int64_t> Value::index() const {
  if (is(Kind::kBool)) return flag() ? 1 : 0;
  if (is(Kind::kInteger)) return integer();
  return std::nullopt;
}

bool Value::is_safe() const { return is(Kind::kText) && std::get<Text>(data_).is_safe; }

double Value::number() const {
  return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(index().value_or(0));
}

const std::vector<Value>& Value::items() const { return std::get<std::shared_ptr<const Sequence>>(data_)->items; }

absl::Status Value::undefined_error() const {
  const auto& why = std::get<Undefined>(data_).why;
  return invalid_argument(why ? *why : "the value is undefined");
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return flag();
    case Kind::kInteger: return integer() != 0;
    case Kind::kFloat: return number() != 0;
    case Kind::kText: return !text().empty();
    case Kind::kList:
    case Kind::kTuple: return !items().empty();
    case Kind::kDict: return !dict()->items.empty();
    case Kind::kView: return !view().dict->items.empty();
    case Kind::kRange: return range().size() > 0;
    default: return true;
  }
}

int Value::nesting() const {
  switch (kind()) {
    case Kind::kList:
    case Kind::kTuple: return std::get<std::shared_ptr<const Sequence>>(data_)->nesting;
    case Kind::kDict: return dict()->nesting;
    case Kind::kView: return view().dict->nesting + 1;
    case Kind::kMethod: return method().self.nesting() + 1;
    case Kind::kGenerator: return generator().nesting;
    default: return 0;
  }
}

const void* Value::place() const {
  switch (kind()) {
    case Kind::kList:
    case Kind::kTuple: return std::get<std::shared_ptr<const Sequence>>(data_).get();
    case Kind::kDict: return dict().get();
    case Kind::kNamespace: return space();
    case Kind::kLoop: return loop();
    case Kind::kMacro: return macro();
    case Kind::kFunction: return function();
    case Kind::kGenerator: return &generator();
    default: return nullptr;
  }
}

std::string Value::type() const {
  switch (kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger: return "int";
    case Kind::kFloat: return "float";
    case Kind::kText: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView:
      return view().part == View::kKeys ? "dict_keys" : view().part == View::kValues ? "dict_values" : "dict_items";
    case Kind::kRange: return "range";
    case Kind::kNamespace: return "namespace";
    case Kind::kLoop: return "loop";
    case Kind::kMacro: return "macro";
    case Kind::kFunction: return "function";
    case Kind::kMethod: return "method";
    case Kind::kGenerator: return "generator";
  }
  return "value";
}

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    return item.first.is(Kind::kText) && item.first.text() == key;
  });
  return found == items.end() ? nullptr : &found->second;
}

absl::StatusOr<const Value*> Dict::find(Machine& machine, const Value& key) const {
  BASCULE_TRY(machine.charge(items.size() / 16 + 1));
  if (key.is(Kind::kText)) return find(std::string_view(key.text()));
  BASCULE_TRY(check_hashable(machine, key));
  for (const auto& [name, value] : items) {
    BASCULE_ASSIGN(const bool is_it, equal(machine, name, key));
    if (is_it) return &value;
  }
  return nullptr;
}

absl::Status Dict::set(Machine& machine, const Value& key, Value value) {
  BASCULE_ASSIGN(const Value* found, find(machine, key));
  nesting = std::max({nesting, key.nesting() + 1, value.nesting() + 1});
  if (found == nullptr) {
    items.emplace_back(key, std::move(value));
  } else {
    *const_cast<Value*>(found) = std::move(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> to_value(const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxNesting) return invalid_argument("expected JSON of at most ", kMaxNesting, " levels, found more");
  switch (json.type()) {
    case Type::null: return Value::none();
    case Type::boolean: return Value::of(json.get<bool>());
    case Type::number_integer: return Value::of(json.get<std::int64_t>());
    case Type::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Value::of_digits(cat(json.get<std::uint64_t>()));
      return Value::of(json.get<std::int64_t>());
    case Type::number_float: return Value::of(json.get<double>());
    case Type::binary: return Value::of_digits(std::string(digits_of(json)));
    case Type::string:
      if (!is_utf8(json.get_ref<const std::string&>())) return invalid_argument("expected UTF-8, found other bytes");
      return Value::of(json.get<std::string>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        BASCULE_ASSIGN(Value value, to_value(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Value::list(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        if (!is_utf8(key)) return invalid_argument("expected UTF-8, found a key of other bytes");
        BASCULE_ASSIGN(Value value, to_value(item, depth + 1));
        items.emplace_back(Value::of(key), std::move(value));
      }
      return Value::dict(std::move(items));
    }
    default: return invalid_argument("expected JSON, found ", json.type_name());
  }
}

}  // namespace bascule::ref::jinja
