// Feeds a program's flags: the text of a config file, and the words of a command line, separated by zero bytes. A
// config file that begins with --- is YAML. A word that begins with BASCULE_ and has an = becomes an environment
// variable instead.
//
//   whatever is refused is refused with INVALID_ARGUMENT
//   the values of accepted flags, as text, set the same values again
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/own_flags.h>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "fuzz.h"
#include "support/temp_folder.h"

ABSL_FLAG(int, worker_threads, 3, "how many threads");
ABSL_FLAG(std::int64_t, seed, -1, "a seed");
ABSL_FLAG(std::uint64_t, steps, 7, "how many steps");
ABSL_FLAG(double, rate, 0.5, "a rate");
ABSL_FLAG(bool, verbose, false, "whether to log more");
ABSL_FLAG(std::string, model, "", "a folder");
ABSL_FLAG(std::optional<int>, limit, std::nullopt, "a limit");
ABSL_FLAG(std::vector<std::string>, urls, {}, "addresses");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(2), "how long to wait");
ABSL_FLAG(bascule::ByteSize, cache_bytes, bascule::ByteSize{256 << 20}, "how much memory");

namespace bascule::fuzz {
namespace {

const ProgramInfo kProgram = {.name = "bascule-fuzz",
                              .summary = "It parses flags.",
                              .section = "fuzz",
                              .companions = {{.section = "other", .flags = {"max-batch", "listen"}}}};

std::string write_config(std::string_view text) {
  static const test::TempFolder folder;
  std::string path = (folder.path() / (text.starts_with("---") ? "flags.yaml" : "flags.json")).string();
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  require(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "the file can be written");
  return path;
}

void check_values() {
  for (const auto& [name, flag] : own_flags()) {
    const std::string value = flag->CurrentValue();
    require(set_flag(*flag, value).ok() && flag->CurrentValue() == value, "a flag's value can be set again");
  }
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  fuzz::Input input(data, size);
  const absl::FlagSaver saver;
  std::vector<std::string> words, variables;
  if (const std::string_view config = input.text(); !config.empty())
    words.push_back("--config=" + fuzz::write_config(config));
  while (!input.empty()) {
    const std::string word(input.text());
    const std::size_t equals = word.find('=');
    const bool is_variable = word.starts_with("BASCULE_") && equals != std::string::npos;
    if (is_variable) ::setenv(variables.emplace_back(word, 0, equals).c_str(), word.c_str() + equals + 1, 1);
    if (!is_variable) words.push_back(word);
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  const auto parsed = parse_flags(arguments, fuzz::kProgram);
  for (const std::string& variable : variables) ::unsetenv(variable.c_str());
  if (!parsed.ok()) fuzz::require_refusal(parsed.status());
  fuzz::check_values();
  return 0;
}
