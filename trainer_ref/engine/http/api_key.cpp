#include <bascule/trainer_ref/engine/http/api_key.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include <bascule/transport/status.h>

namespace bascule::ref {

namespace {

absl::StatusOr<std::string> checked(std::string key, std::string_view from) {
  const bool fits = std::all_of(key.begin(), key.end(),
                                [](char byte) { return absl::ascii_isgraph(static_cast<unsigned char>(byte)); });
  if (!fits) return invalid_argument(from, ": expected a key of letters, digits and signs of ASCII, without spaces");
  return key;
}

}  // namespace

bool AbslParseFlag(absl::string_view text, KeyFlag* flag, std::string* /*error*/) {
  flag->text = std::string(text);
  return true;
}
std::string AbslUnparseFlag(const KeyFlag& flag) { return flag.text.value_or(""); }

absl::StatusOr<std::string> find_api_key(const KeyFlag& flag, const KeyFlag& file) {
  if (flag.text && file.text)
    return invalid_argument("--api-key-file=", *file.text, ": --api-key is also given; give one of them");
  // An empty script variable would open the engine to everybody.
  if (flag.text == "") return invalid_argument("--api-key=: give a key, or leave --api-key out to serve anybody");
  if (file.text == "")
    return invalid_argument(
        "--api-key-file=: give a file, as --api-key-file=/run/engine-key, or leave it out to serve ", "anybody");
  if (flag.text) return checked(*flag.text, "--api-key");
  if (!file.text) {
    const char* variable = std::getenv("BASCULE_API_KEY");
    return checked(variable == nullptr ? "" : variable, "BASCULE_API_KEY");
  }
  const std::string from = cat("--api-key-file=", *file.text);
  std::ifstream input(*file.text);
  std::string key;
  if (!std::getline(input, key)) return invalid_argument(from, ": expected a file whose first line is the key");
  absl::StripAsciiWhitespace(&key);
  if (key.empty()) return invalid_argument(from, ": its first line is empty; write the key there");
  return checked(std::move(key), from);
}

bool gives_key(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(status_internal::piece(authorization), status_internal::piece(kScheme))) return false;
  std::string_view given = authorization.substr(kScheme.size());
  while (given.starts_with(' ')) given.remove_prefix(1);
  while (given.ends_with(' ')) given.remove_suffix(1);
  if (given.size() != key.size()) return false;
  volatile unsigned char difference = 0;  // every byte is compared, wherever the first difference is
  for (std::size_t i = 0; i < key.size(); ++i)
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(given[i] ^ key[i]));
  return difference == 0;
}

}  // namespace bascule::ref
