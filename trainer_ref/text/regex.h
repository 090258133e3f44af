// A regular expression, compiled by PCRE2 to machine code. UTF-8, with Unicode's properties.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct Span {
  std::size_t begin = 0, end = 0;  // bytes of a text
};

// Immutable; any thread may use it, each with a separate Matcher.
class Regex {
 public:
  // Compiles a pattern in PCRE2's syntax. UNIMPLEMENTED says why PCRE2 cannot.
  static absl::StatusOr<Regex> compile(std::string_view pattern);

 private:
  friend class Matcher;
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// Finds the matches of one expression, one after another. One thread; not copied.
class Matcher {
 public:
  explicit Matcher(const Regex& regex);
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher();

  // Returns the first match that begins at `from` or later, if any. `text` is UTF-8. Returns RESOURCE_EXHAUSTED if the
  // search was given up because it needed too many steps.
  absl::StatusOr<std::optional<Span>> next(std::string_view text, std::size_t from);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bascule::ref
