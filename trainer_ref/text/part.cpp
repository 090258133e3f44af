#include <bascule/trainer_ref/text/part.h>

#include <bascule/transport/status.h>

namespace bascule::ref {

absl::Status unread(std::string_view what) {
  return unimplemented(what, " is not supported; the model can be served by token ids");
}

absl::StatusOr<std::string> type_of(const nlohmann::json& part, std::string_view kind) {
  constexpr std::size_t kShown = 80;
  const auto type = part.is_object() ? part.find("type") : part.end();
  if (!part.is_object() || type == part.end() || !type->is_string()) {
    return invalid_argument(kind, ": expected an object with a type, found ", part.dump().substr(0, kShown));
  }
  return type->get<std::string>();
}

absl::StatusOr<const nlohmann::json*> list_of(const nlohmann::json& part, const char* key) {
  const auto list = part.find(key);
  if (list == part.end() || !list->is_array()) {
    return invalid_argument("Sequence: expected a list '", key, "', found ",
                            list == part.end() ? "none" : list->type_name());
  }
  return &*list;
}

std::string measured(std::string_view text) { return cat(text.size(), ":", text); }

}  // namespace bascule::ref
