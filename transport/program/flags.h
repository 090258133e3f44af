// Command lines of the programs: flags are ABSL_FLAGs of the program's own sources, found by reflection.
//
// Abseil's own parser ends the process on an error, exits with 1 on --help and knows no JSON; this one
// returns values. On the command line a flag is --name=value or --name value, and --name or --no-name for a
// bool; words are joined by dashes (the underscores of the C++ name are taken, too). The last one wins. No
// thread may read flags meanwhile.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

struct ProgramInfo {
  std::string name;     // "bascule-engine"
  std::string summary;  // what it does, a few lines; printed above the flags by --help
};

enum class ParsedFlags { kRun, kHelp };

// Sets the flags. `--config FILE` is read first: one JSON object from flag names to values, a list for a flag
// that takes commas. What stands on the command line wins over it. INVALID_ARGUMENT says what is wrong with a
// flag that is unknown (naming the nearest known one), ill-typed or without a value, and with words that are
// no flag.
absl::StatusOr<ParsedFlags> parse_flags(std::span<const char* const> arguments);

// Every flag with its help and default, one beneath the other in alphabetic order.
std::string help_text(const ProgramInfo& program);

// For main(): as parse_flags, but --help prints the text and exits with 0, and an error exits as refuse()
// does.
void parse_flags_or_exit(const ProgramInfo& program, int argc, const char* const* argv);

// Prints "NAME: MESSAGE" and where to find help to stderr, and exits with 2.
[[noreturn]] void refuse(const ProgramInfo& program, const absl::Status& why);

}  // namespace bascule::inline v0
