#include <bascule/transport/program/flags.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include <bascule/transport/program/config_file.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/own_flags.h>
#include <bascule/transport/program/repeated.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::string source_name(absl::string_view flag) { return absl::StrReplaceAll(flag, {{"-", "_"}}); }

struct Argument {
  std::string_view name;
  std::optional<std::string_view> value;  // after '='
};

absl::StatusOr<Argument> split(std::string_view word) {
  if (!word.starts_with("--") || word.size() == 2)
    return invalid_argument("'", word,
                            "' is not a flag: expected --name=value, as --config=flags.json (--help lists them)");
  word.remove_prefix(2);
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return Argument{word, std::nullopt};
  return Argument{word.substr(0, equals), word.substr(equals + 1)};
}

// The command line as pairs of name and value, including `--config` and `--help`.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> pairs(std::span<const char* const> words) {
  std::vector<std::pair<std::string, std::string>> result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::string_view(words[i]) == "-h") {
      result.emplace_back("help", "");
      continue;
    }
    absl::StatusOr<Argument> argument = split(words[i]);
    if (!argument.ok()) return argument.status();
    auto& [name, value] = *argument;
    if (name == "help") {
      result.emplace_back("help", "");
      continue;
    }
    if (name != "config") {
      absl::StatusOr<absl::CommandLineFlag*> flag = find_flag(name);
      if (!flag.ok() && name.starts_with("no") && !value) {  // --no-name, --noname
        std::string_view positive = name.substr(name.starts_with("no-") ? 3 : 2);
        if (absl::StatusOr<absl::CommandLineFlag*> negated = find_flag(positive);
            negated.ok() && (*negated)->IsOfType<bool>()) {
          result.emplace_back(positive, "false");
          continue;
        }
      }
      if (!flag.ok()) return flag.status();
      if ((*flag)->IsOfType<bool>() && !value) value = "true";
    }
    if (!value) {
      if (i + 1 == words.size() || std::string_view(words[i + 1]).starts_with("--"))
        return invalid_argument("--", name, " needs a value, as ",
                                name == "config" ? "--config=flags.json" : example_of(**find_flag(name)));
      value = words[++i];
    }
    result.emplace_back(name, *value);
  }
  return result;
}

// `text` broken at spaces into lines of at most `width` columns, each after `indent`.
std::string wrapped(absl::string_view text, absl::string_view indent, std::size_t width) {
  std::string result;
  std::size_t column = width + 1;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const absl::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    if (column + 1 + word.size() > width) {
      result += cat(result.empty() ? "" : "\n", indent, word);
      column = indent.size() + word.size();
    } else {
      result += cat(" ", word);
      column += 1 + word.size();
    }
  }
  return result;
}

constexpr std::string_view kConfigHelp =
    "A file of flags: a JSON object, such as {\"threads\": 2}, or YAML if its name ends in .yaml or .yml.";

std::string shared_help(const ProgramInfo& program) {
  std::string sections = cat("\"", program.section, "\": {…}");
  for (const Companion& companion : program.companions) sections += cat(" and \"", companion.section, "\": {…}");
  return cat(kConfigHelp,
             " It may also hold flags of the other program; "
             "those in ",
             sections, " are for one program only. ", kConfigVariable,
             " may also name a file. Each flag can also be set by an environment variable: ", variable_of("max-tokens"),
             " sets --max-tokens. The command line overrides the environment, and the environment overrides files.");
}

}  // namespace

absl::StatusOr<ParsedFlags> parse_flags(std::span<const char* const> arguments, const ProgramInfo& program) {
  const auto given = pairs(arguments);
  if (!given.ok()) return given.status();
  for (const auto& [name, value] : *given)
    if (name == "help") return ParsedFlags{.help = true};
  ParsedFlags parsed;
  const bool shares = !program.companions.empty();
  if (const char* const file = shares ? std::getenv(kConfigVariable) : nullptr; file != nullptr && *file != 0)
    parsed.config_files.emplace_back(file);
  for (const auto& [name, value] : *given)
    if (name == "config") parsed.config_files.push_back(value);
  for (const std::string& file : parsed.config_files) BASCULE_TRY(apply_config_file(file, program));
  if (shares) {
    BASCULE_ASSIGN(parsed.warnings, apply_environment(program));
  }
  std::map<std::string, std::string> lists;  // what repeated flags were given
  for (const auto& [name, value] : *given) {
    if (name == "config") continue;
    absl::CommandLineFlag& flag = *absl::FindCommandLineFlag(source_name(name));
    std::string whole = value;
    if (flag.IsOfType<Repeated>()) {
      std::string& list = lists[source_name(name)];
      whole = list += cat(list.empty() ? "" : ",", value);
    }
    BASCULE_TRY(set_flag(flag, whole));
  }
  return parsed;
}

std::string help_text(const ProgramInfo& program) {
  std::string text = cat(program.name, ": ", program.summary, "\n\nFlags:\n");
  const auto entry = [&text](absl::string_view head, absl::string_view help) {
    text += cat("  ", head, "\n", wrapped(help, "      ", 100), "\n");
  };
  if (program.companions.empty()) {
    entry("--config=FILE", cat(kConfigHelp, " A flag on the command line overrides it."));
  } else {
    entry("--config=FILE", shared_help(program));
  }
  entry("--help, -h", "Print this text.");
  for (const auto& [name, flag] : own_flags()) {
    const std::string value = flag->DefaultValue();
    entry(cat("--", name, "=", type_name(*flag), value.empty() ? "" : cat("  (default ", value, ")")), flag->Help());
  }
  return text;
}

ParsedFlags parse_flags_or_exit(const ProgramInfo& program, int argc, const char* const* argv) {
  const std::span<const char* const> words(argv, static_cast<std::size_t>(argc));
  absl::StatusOr<ParsedFlags> parsed = parse_flags(words.subspan(words.empty() ? 0 : 1), program);
  if (!parsed.ok()) refuse(program, parsed.status());
  if (parsed->help) std::exit(end_with(program.name, help_text(program), 0));
  for (const std::string& warning : parsed->warnings)
    std::fputs(cat(program.name, ": ", warning, "\n").c_str(), stderr);
  return *std::move(parsed);
}

void refuse(const ProgramInfo& program, const absl::Status& why) {
  const std::string text = cat(program.name, ": ", why.message(), "\n", program.name, " --help lists the flags\n");
  std::fputs(text.c_str(), stderr);
  std::exit(2);
}

}  // namespace bascule::inline v0
