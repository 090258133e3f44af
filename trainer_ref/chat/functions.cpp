#include <bascule/trainer_ref/chat/functions.h>

#include <algorithm>
#include <array>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

template <typename Table>
const typename Table::value_type* in(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Filter* find_filter(std::string_view name) {
  for (const auto* table : {&text_filters(), &list_filters(), &order_filters(), &number_filters()}) {
    if (const Filter* filter = in(*table, name)) return filter;
  }
  return nullptr;
}

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<Bound> Bound::bind(std::string_view name, std::string_view parameters, Arguments arguments) {
  Bound bound;
  bound.name_ = name;
  std::vector<bool> needed;
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
    needed.push_back(word.back() != '?');
    if (word.back() == '?') word.remove_suffix(1);
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

bool is_filter_of_jinja(std::string_view name) {
  static constexpr std::array<std::string_view, 21> kOthers = {
      "attr",      "batch",   "center",    "e",        "escape", "filesizeformat", "forceescape",
      "format",    "groupby", "pprint",    "random",   "slice",  "striptags",      "truncate",
      "urlencode", "urlize",  "wordcount", "wordwrap", "xmlattr"};
  return is_filter(name) || is_one_of(name, kOthers);
}
bool is_test_of_jinja(std::string_view name) { return is_test(name) || name == "escaped"; }

absl::StatusOr<Value> apply_filter(Machine& machine, std::string_view name, const Value& value, Arguments arguments) {
  if (const OpenFilter* open = in(open_filters(), name)) return open->run(machine, value, std::move(arguments));
  const Filter* filter = find_filter(name);
  if (filter == nullptr) return unimplemented("the filter '", name, "' is not known here");
  BASCULE_ASSIGN(const Bound bound, Bound::bind(name, filter->parameters, std::move(arguments)));
  return filter->run(machine, value, bound);
}

absl::StatusOr<bool> apply_test(Machine& machine, std::string_view name, const Value& value, Arguments arguments) {
  const Test* test = in(tests(), name);
  if (test == nullptr) return unimplemented("the test '", name, "' is not known here");
  BASCULE_ASSIGN(const Bound bound, Bound::bind(name, test->parameters, std::move(arguments)));
  return test->run(machine, value, bound);
}

bool is_unknown_global(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kOthers = {"lipsum", "cycler", "joiner", "self"};
  return is_one_of(name, kOthers);
}

}  // namespace bascule::ref::jinja
