// What methods and filters over texts share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::ref::jinja {

class Machine;

enum class Side { kLeft, kRight, kBoth };

// strip(), of whitespace or of the code points of `characters`.
std::string_view stripped(std::string_view text, Side side);
std::string_view stripped(std::string_view text, std::string_view characters, Side side);

// replace(), at most `count` times; all where it is negative.
absl::StatusOr<std::string> replaced(Machine& machine, std::string_view text, std::string_view from,
                                     std::string_view to, std::int64_t count);

// capitalize()
std::string capitalized(std::string_view text);

// islower() or isupper(). UNIMPLEMENTED beyond ASCII.
absl::StatusOr<bool> is_all_of_case(std::string_view text, bool is_lower);

// UNIMPLEMENTED where the lower case depends on what stands around a letter.
absl::Status check_case(std::string_view text);

}  // namespace bascule::ref::jinja
