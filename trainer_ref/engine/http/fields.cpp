#include <bascule/trainer_ref/engine/http/fields.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace bascule::ref {

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // does not cut a character
  return text.substr(0, end) + "…";
}

std::string shown(const nlohmann::ordered_json& value) { return shown(nlohmann::json::parse(value.dump())); }

const nlohmann::json* Fields::find(const char* field) {
  read_.insert(field);
  const auto found = object_.find(field);
  return !status.ok() || found == object_.end() || found->is_null() ? nullptr : &*found;
}

nlohmann::json Fields::without_fraction(const Json& number) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const double value = number.is_number_float() ? number.get<double>() : 0.5;
  if (!(std::abs(value) < kExact) || std::trunc(value) != value) return nullptr;
  const auto whole = static_cast<std::int64_t>(value);
  return whole < 0 ? Json(whole) : Json(static_cast<std::uint64_t>(whole));
}

void Fields::number(const char* field, double& value, double low, double high) {
  const Json* given = find(field);
  if (given == nullptr) return;
  if (!given->is_number() || !(given->get<double>() >= low && given->get<double>() <= high))
    return refuse(field, *given, cat("a number from ", low, " to ", high));
  value = given->get<double>();
}

void Fields::boolean(const char* field, bool& value) {
  const Json* given = find(field);
  if (given == nullptr) return;
  if (!given->is_boolean()) return refuse(field, *given, "true or false");
  value = given->get<bool>();
}

void Fields::neutral(const char* field, const std::vector<Json>& values) {
  const Json* given = find(field);
  if (given == nullptr || std::find(values.begin(), values.end(), *given) != values.end()) return;
  refuse(invalid_argument("field \"", field, "\" is not supported: leave it out or give ", shown(values.front()),
                          ", found ", shown(*given)));
}

void Fields::accept(std::span<const char* const> fields) {
  for (const char* field : fields) find(field);
}

void Fields::refuse(std::string_view field, const Json& found, std::string_view expected) {
  refuse(invalid_argument(field, ": expected ", expected, ", found ", shown(found)));
}

void Fields::refuse(absl::Status why) {
  if (status.ok()) status = std::move(why);
}

void Fields::add_unread(std::string_view field, const Fields& inner) {
  for (const std::string& name : inner.unread()) unread_inside_.push_back(cat(field, ".", name));
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names = unread_inside_;
  for (const auto& [name, value] : object_.items())
    if (!read_.contains(name)) names.push_back(name);
  return names;
}

}  // namespace bascule::ref
