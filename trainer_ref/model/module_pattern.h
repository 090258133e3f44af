// Which modules of a model a key of PEFT's configuration means. PEFT matches such keys with Python's regular
// expressions. Here they are std::regex, without lookaheads and without what
// the two read in different ways.
#pragma once

#include <memory>
#include <regex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

class ModulePattern {
 public:
  // A key of rank_pattern or alpha_pattern. It matches the end of a module's name, starting at a dot or at the name's
  // beginning: "q_proj", "layers.0.self_attn.q_proj", "(q|k)_proj".
  static absl::StatusOr<ModulePattern> of_end(const std::string& expression);
  // A text of target_modules: it must match the whole name.
  static absl::StatusOr<ModulePattern> of_whole(const std::string& expression);

  bool matches(std::string_view module) const;

 private:
  // A key of letters, digits, '_', '-' and '.' needs no regular expression: some adapters have one key per module.
  std::string literal_;  // '\0' where a dot stands for any character
  bool is_anchored_ = false;
  std::shared_ptr<const std::regex> regex_;  // null for a literal
};

}  // namespace bascule::ref
