// Parses the programs' command lines. Flags are ABSL_FLAGs of the program's own sources, found by reflection.
//
// Abseil's own parser ends the process on an error, exits with 1 on --help and reads no config files; this one
// returns errors and reads them. On the command line a flag is --name=value or --name value, and a bool is --name or
// --no-name. The words of a flag's name are joined by dashes; the underscores of the C++ name also work. If a flag is
// given twice, the last one wins, unless it is Repeated (repeated.h). No thread may read flags while they are parsed.
//
// Programs that are used together share one config file and one set of environment variables, and each program takes
// its own flags from them. The command line overrides the environment, which overrides config files.
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
  bool help = false;                           // --help was given; no flag was set
  std::vector<std::string> config_files = {};  // the files that were read, in order
  std::vector<std::string> warnings = {};      // about environment variables that nothing reads
};

// Sets the flags, in three steps. First come the files of BASCULE_CONFIG and `--config FILE`. Each is one object of
// JSON or YAML that maps flag names to values; a flag whose values are separated by commas may be given a list. In it a
// program's section, an object of flags for that program only, overrides the flags beside it. Then come environment
// variables, such as BASCULE_MAX_TOKENS for --max-tokens, and last the command line. Returns INVALID_ARGUMENT for a
// flag that is unknown (the text suggests the nearest known one), ill-typed or without a value, and for words that are
// not flags.
absl::StatusOr<ParsedFlags> parse_flags(std::span<const char* const> arguments, const ProgramInfo& program = {});

// Returns every flag with its help and default, in alphabetical order.
std::string help_text(const ProgramInfo& program);

// For main(): like parse_flags(), but --help prints the text and exits with 0, an error exits through refuse(), and
// warnings go to stderr.
ParsedFlags parse_flags_or_exit(const ProgramInfo& program, int argc, const char* const* argv);

// Prints "NAME: MESSAGE" and how to get help to stderr, and exits with 2.
[[noreturn]] void refuse(const ProgramInfo& program, const absl::Status& why);

}  // namespace bascule::inline v0
