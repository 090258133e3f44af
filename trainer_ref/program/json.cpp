#include "trainer_ref/program/json.h"

#include <string>

#include "transport/text.h"

namespace bascule::ref {
namespace {

struct TooDeep {};

}  // namespace

absl::StatusOr<nlohmann::json> parse_json(std::string_view text) {
  const auto bound_depth = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMaxJsonDepth) throw TooDeep{};
    return true;
  };
  try {
    return nlohmann::json::parse(text, bound_depth);
  } catch (const TooDeep&) {
    return invalid_argument("JSON nested deeper than ", kMaxJsonDepth, " levels");
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument("not JSON: ", error.what());
  }
}

}  // namespace bascule::ref
