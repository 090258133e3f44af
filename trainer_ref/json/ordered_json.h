// JSON whose form counts: a chat template writes the keys of objects in their order, and integers with all their
// digits.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace bascule::ref {

// Parses a text that parse_json() has accepted. Keeps the order of keys. An integer beyond 64 bits becomes a binary
// value that holds its digits, since a double would lose some of them. Nothing else becomes a binary value.
nlohmann::ordered_json parse_ordered(std::string_view text);

// Returns the first such binary value in `json`, or null if there is none.
const nlohmann::ordered_json* find_big_integer(const nlohmann::ordered_json& json);

// The digits in such a binary value.
std::string_view digits_of(const nlohmann::ordered_json& integer);

}  // namespace bascule::ref
