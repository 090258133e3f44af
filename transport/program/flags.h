// Command lines of the programs: flags are ABSL_FLAGs of the program's own sources, found by reflection.
//
// Abseil's own parser ends the process on an error, exits with 1 on --help and knows no JSON; this one
// returns values. On the command line a flag is --name=value or --name value, and --name or --no-name for a
// bool; words are joined by dashes (the underscores of the C++ name are taken, too). The last one wins. No
// thread may read flags meanwhile.
//
// Programs that are used together share one config file and one set of environment variables: each takes its own flags
// from there and leaves the others'. The command line wins over the environment, and that over config files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/program/flag_sources.h>

namespace bascule::inline v0 {

struct ParsedFlags {
  bool help = false;                           // only that was asked for; no flag was set
  std::vector<std::string> config_files = {};  // that were read, in this order
  std::vector<std::string> warnings = {};      // of environment variables that nothing reads
};

// Sets the flags. Files of BASCULE_CONFIG and `--config FILE` are read first: one JSON object from flag names to
// values, a list for a flag that takes commas; flags in the object of a program's section are that program's alone and
// win over those beside it. Variables come next, BASCULE_MAX_TOKENS for --max-tokens, and then the command line.
// INVALID_ARGUMENT says what is wrong with a flag that is unknown (naming the nearest known one), ill-typed or without
// a value, and with words that are no flag.
absl::StatusOr<ParsedFlags> parse_flags(std::span<const char* const> arguments, const ProgramInfo& program = {});

// Every flag with its help and default, one beneath the other in alphabetic order.
std::string help_text(const ProgramInfo& program);

// For main(): as parse_flags, but --help prints the text and exits with 0, an error exits as refuse() does, and
// warnings are printed to stderr.
ParsedFlags parse_flags_or_exit(const ProgramInfo& program, int argc, const char* const* argv);

// Prints "NAME: MESSAGE" and where to find help to stderr, and exits with 2.
[[noreturn]] void refuse(const ProgramInfo& program, const absl::Status& why);

}  // namespace bascule::inline v0
