// A request's target: its path and its query.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/http/http_message.h>

namespace bascule::ref {

inline std::string_view target_of(const HttpHeader& header) { return {header.target().data(), header.target().size()}; }

// A part of a target, in which clients may write any byte as %XX.
std::string without_percents(std::string_view text);

// All values of `name` in a target's query; and the first one.
std::vector<std::string> query_values(std::string_view target, std::string_view name);
std::optional<std::string> query_value(std::string_view target, std::string_view name);

// The value of a query's flag: true or false in any case (Python writes True), 1 or 0. Nullopt: another value.
std::optional<bool> query_flag(std::string_view target, std::string_view name, bool otherwise);

}  // namespace bascule::ref
