#include <bascule/transport/program/flag_sources.h>

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include <bascule/transport/program/config_file.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/program/own_flags.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::string_view kPrefix = "BASCULE_";

// Variables that set no flag, because other parts read them: the library, its vLLM plugin, the engine's server, the
// tests.
constexpr std::string_view kOthers[] = {"BASCULE_TOKEN",        "BASCULE_ENDPOINT",   "BASCULE_APPLY",
                                        "BASCULE_FOLLOW",       "BASCULE_API_KEY",    kConfigVariable,
                                        "BASCULE_CHAOS_ROUNDS", "BASCULE_CHAOS_SEED", "BASCULE_TEST_SLOWNESS"};

bool is_of_others(std::string_view variable) {
  return std::find(std::begin(kOthers), std::end(kOthers), variable) != std::end(kOthers);
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_of_companion(const ProgramInfo& program, const std::string& flag) {
  return std::any_of(program.companions.begin(), program.companions.end(),
                     [&](const Companion& companion) { return holds(companion.flags, flag); });
}

// The flags of all programs.
std::vector<std::string> all_flags(const ProgramInfo& program) {
  std::vector<std::string> names;
  for (const auto& [name, flag] : own_flags()) names.push_back(name);
  for (const Companion& companion : program.companions)
    names.insert(names.end(), companion.flags.begin(), companion.flags.end());
  return names;
}

absl::Status apply(const ConfigEntry& entry) {
  BASCULE_ASSIGN(absl::CommandLineFlag* const flag, find_flag(entry.name));
  BASCULE_ASSIGN(const std::string value, flag_value(*flag, entry));
  return set_flag(*flag, value);
}

absl::Status check_section(const ConfigEntry& section, const Companion& companion) {
  BASCULE_ASSIGN(const std::vector<ConfigEntry> entries, entries_of(section));
  for (const ConfigEntry& entry : entries)
    if (!holds(companion.flags, shown_name(entry.name)))
      return invalid_argument("\"", section.name, "\": unknown flag \"", entry.name, "\"",
                              did_you_mean(shown_name(entry.name), companion.flags));
  return absl::OkStatus();
}

absl::Status apply_section(const ConfigEntry& section) {
  BASCULE_ASSIGN(const std::vector<ConfigEntry> entries, entries_of(section));
  for (const ConfigEntry& entry : entries) BASCULE_TRY(annotate(apply(entry), cat("\"", section.name, "\"")));
  return absl::OkStatus();
}

// Skips the programs' objects, which come later and override the flags beside them.
absl::Status apply_common(const ConfigEntry& entry, const ProgramInfo& program) {
  absl::Status applied = apply(entry);
  if (applied.ok() || find_flag(entry.name).ok() || program.companions.empty()) return applied;
  if (entry.name == program.section) return absl::OkStatus();
  for (const Companion& companion : program.companions)
    if (entry.name == companion.section) return check_section(entry, companion);
  if (is_of_companion(program, shown_name(entry.name))) return absl::OkStatus();
  return invalid_argument("unknown flag \"", entry.name, "\"", did_you_mean(shown_name(entry.name), all_flags(program)),
                          "; neither program has it (--help lists their flags)");
}

}  // namespace

std::string variable_of(std::string_view flag) {
  return cat(kPrefix, absl::AsciiStrToUpper(absl::StrReplaceAll(cat(flag), {{"-", "_"}})));
}

absl::Status apply_config_file(const std::string& file, const ProgramInfo& program) {
  BASCULE_ASSIGN(std::vector<ConfigEntry> entries, read_config_file(file));
  if (program.translate != nullptr) {
    absl::StatusOr<std::vector<ConfigEntry>> translated = program.translate(std::move(entries));
    BASCULE_TRY(annotate(translated.status(), file));
    entries = *std::move(translated);
  }
  for (const ConfigEntry& entry : entries) BASCULE_TRY(annotate(apply_common(entry, program), file));
  for (const ConfigEntry& entry : entries)
    if (!program.section.empty() && entry.name == program.section) BASCULE_TRY(annotate(apply_section(entry), file));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> apply_environment(const ProgramInfo& program) {
  std::vector<std::string> known;
  for (const std::string& flag : all_flags(program)) known.push_back(variable_of(flag));
  std::vector<std::string> warnings;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos || is_of_others(text.substr(0, equals)))
      continue;
    const std::string name(text.substr(0, equals)), value(text.substr(equals + 1));
    const auto flags = own_flags();
    const auto flag = std::find_if(flags.begin(), flags.end(),
                                   [&](const auto& candidate) { return variable_of(candidate.first) == name; });
    if (flag != flags.end()) {
      if (!value.empty()) BASCULE_TRY(annotate(set_flag(*flag->second, value), name));
    } else if (!holds(known, name)) {
      warnings.push_back(cat("the environment's ", name, " names no flag", did_you_mean(name, known)));
    }
  }
  return warnings;
}

}  // namespace bascule::inline v0
