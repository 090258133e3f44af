#include <bascule/transport/program/own_flags.h>

#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include <bascule/transport/program/config_file.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

std::string shown_name(std::string_view flag) {
  return absl::StrReplaceAll(absl::string_view(flag.data(), flag.size()), {{"_", "-"}});
}

std::string example_of(const absl::CommandLineFlag& flag) {
  static const std::map<std::string_view, std::string_view> words = {
      {"BOOL", "true"}, {"INTEGER", "8"}, {"NUMBER", "0.5"}, {"SIZE", "256MiB"}, {"DURATION", "30s"}, {"LIST", "a,b"}};
  const std::string value = flag.DefaultValue();
  const auto word = words.find(type_name(flag));
  return cat("--", shown_name(std::string(flag.Name())), "=",
             !value.empty()        ? std::string_view(value)
             : word == words.end() ? "TEXT"
                                   : word->second);
}

std::map<std::string, absl::CommandLineFlag*, std::less<>> own_flags() {
  std::map<std::string, absl::CommandLineFlag*, std::less<>> flags;
  for (const auto& [name, flag] : absl::GetAllFlags())
    if (flag->Filename().find("absl/") == absl::string_view::npos) flags.emplace(shown_name(std::string(name)), flag);
  return flags;
}

absl::StatusOr<absl::CommandLineFlag*> find_flag(std::string_view name) {
  const auto flags = own_flags();
  const auto found = flags.find(shown_name(name));
  if (found != flags.end()) return found->second;
  std::vector<std::string> known{"config", "help"};
  for (const auto& [shown, flag] : flags) known.push_back(shown);
  return invalid_argument("unknown flag --", name, did_you_mean(name, known, "--"), " (--help lists them all)");
}

absl::Status set_flag(absl::CommandLineFlag& flag, const std::string& value) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  // Abseil writes "Illegal value 'v' specified for flag 'f'" and, after a semicolon, the error of the type's parser.
  const std::size_t own_words = error.rfind("'; ");
  return invalid_argument(
      "--", shown_name(std::string(flag.Name())), "=", value, ": expected ", type_name(flag),
      own_words == std::string::npos ? cat(", as ", example_of(flag)) : cat(", ", error.substr(own_words + 3)));
}

}  // namespace bascule::inline v0
