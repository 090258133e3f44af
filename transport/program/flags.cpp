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
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/text.h>

namespace bascule::inline v0 {
namespace {

// worker_threads in the source, --worker-threads to people.
std::string shown_name(absl::string_view flag) { return absl::StrReplaceAll(flag, {{"_", "-"}}); }
std::string source_name(absl::string_view flag) { return absl::StrReplaceAll(flag, {{"-", "_"}}); }

// "--threads=8": its default, or a word of its type.
std::string example_of(const absl::CommandLineFlag& flag) {
  static const std::map<std::string_view, std::string_view> words = {
      {"BOOL", "true"}, {"INTEGER", "8"}, {"NUMBER", "0.5"}, {"SIZE", "256MiB"}, {"DURATION", "30s"}, {"LIST", "a,b"}};
  const std::string value = flag.DefaultValue();
  const auto word = words.find(type_name(flag));
  return cat("--", shown_name(flag.Name()), "=",
             !value.empty()        ? std::string_view(value)
             : word == words.end() ? "TEXT"
                                   : word->second);
}

// By shown name; without the flags that Abseil's own parts define.
std::map<std::string, absl::CommandLineFlag*, std::less<>> own_flags() {
  std::map<std::string, absl::CommandLineFlag*, std::less<>> flags;
  for (const auto& [name, flag] : absl::GetAllFlags())
    if (flag->Filename().find("absl/") == absl::string_view::npos) flags.emplace(shown_name(name), flag);
  return flags;
}

absl::StatusOr<absl::CommandLineFlag*> find(std::string_view name) {
  const auto flags = own_flags();
  const auto found = flags.find(shown_name(std::string(name)));
  if (found != flags.end()) return found->second;
  std::vector<std::string> known{"config", "help"};
  for (const auto& [shown, flag] : flags) known.push_back(shown);
  return invalid_argument("unknown flag --", name, did_you_mean(name, known, "--"), " (--help lists them all)");
}

absl::Status set(absl::CommandLineFlag& flag, const std::string& value) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  // Abseil writes "Illegal value 'v' specified for flag 'f'", and behind a semicolon what the type's own
  // parser says.
  const std::size_t own_words = error.rfind("'; ");
  return invalid_argument(
      "--", shown_name(flag.Name()), "=", value, ": expected ", type_name(flag),
      own_words == std::string::npos ? cat(", as ", example_of(flag)) : cat(", ", error.substr(own_words + 3)));
}

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

// The command line as pairs of name and value; `--config` and `--help` stand among them.
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
      absl::StatusOr<absl::CommandLineFlag*> flag = find(name);
      if (!flag.ok() && name.starts_with("no") && !value) {  // --no-name, --noname
        std::string_view positive = name.substr(name.starts_with("no-") ? 3 : 2);
        if (absl::StatusOr<absl::CommandLineFlag*> negated = find(positive);
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
                                name == "config" ? "--config=flags.json" : example_of(**find(name)));
      value = words[++i];
    }
    result.emplace_back(name, *value);
  }
  return result;
}

absl::Status apply_config(const std::string& file) {
  absl::StatusOr<std::vector<ConfigEntry>> entries = read_config_file(file);
  if (!entries.ok()) return entries.status();
  for (const ConfigEntry& entry : *entries) {
    absl::Status status;
    absl::StatusOr<absl::CommandLineFlag*> flag = find(entry.name);
    if (!flag.ok()) {
      status = flag.status();
    } else {
      absl::StatusOr<std::string> value = flag_value(**flag, entry);
      status = value.ok() ? set(**flag, *value) : value.status();
    }
    if (!status.ok()) return invalid_argument(file, ": ", status.message());
  }
  return absl::OkStatus();
}

// `text` broken at spaces into lines of at most `width` columns, each behind `indent`.
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

}  // namespace

absl::StatusOr<ParsedFlags> parse_flags(std::span<const char* const> arguments) {
  const auto given = pairs(arguments);
  if (!given.ok()) return given.status();
  for (const auto& [name, value] : *given)
    if (name == "help") return ParsedFlags::kHelp;
  for (const auto& [name, value] : *given)
    if (name == "config")
      if (absl::Status status = apply_config(value); !status.ok()) return status;
  for (const auto& [name, value] : *given)
    if (name != "config")
      if (absl::Status status = set(*absl::FindCommandLineFlag(source_name(name)), value); !status.ok()) return status;
  return ParsedFlags::kRun;
}

std::string help_text(const ProgramInfo& program) {
  std::string text = cat(program.name, ": ", program.summary, "\n\nFlags:\n");
  const auto entry = [&text](absl::string_view head, absl::string_view help) {
    text += cat("  ", head, "\n", wrapped(help, "      ", 100), "\n");
  };
  entry("--config=FILE",
        "A file with a JSON object of flags, as {\"threads\": 2}. A flag on the command line wins "
        "over it.");
  entry("--help, -h", "Print this text.");
  for (const auto& [name, flag] : own_flags()) {
    const std::string value = flag->DefaultValue();
    entry(cat("--", name, "=", type_name(*flag), value.empty() ? "" : cat("  (default ", value, ")")), flag->Help());
  }
  return text;
}

void parse_flags_or_exit(const ProgramInfo& program, int argc, const char* const* argv) {
  const std::span<const char* const> words(argv, static_cast<std::size_t>(argc));
  const absl::StatusOr<ParsedFlags> parsed = parse_flags(words.subspan(words.empty() ? 0 : 1));
  if (!parsed.ok()) refuse(program, parsed.status());
  if (*parsed == ParsedFlags::kRun) return;
  std::exit(end_with(program.name, help_text(program), 0));
}

void refuse(const ProgramInfo& program, const absl::Status& why) {
  const std::string text = cat(program.name, ": ", why.message(), "\n", program.name, " --help tells more\n");
  std::fputs(text.c_str(), stderr);
  std::exit(2);
}

}  // namespace bascule::inline v0
