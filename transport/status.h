// Errors: helpers that make an absl::Status with a text, and macros that pass one on. Debian's Abseil has its own
// string_view, so std::string_view must be converted.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace bascule::inline v0 {
namespace status_internal {
inline absl::string_view piece(std::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view piece(const std::string& text) { return {text.data(), text.size()}; }
inline absl::string_view piece(const char* text) { return text; }
template <typename T>
const T& piece(const T& value) {
  return value;
}
}  // namespace status_internal

// absl::StrCat that also takes std::string_view. It preserves errno, which an allocation may set, so that
// errno_status(errno, cat(...)) reports the original error.
template <typename... Pieces>
std::string cat(const Pieces&... pieces) {
  const int error = errno;
  std::string text = absl::StrCat(status_internal::piece(pieces)...);
  errno = error;
  return text;
}

template <typename... Pieces>
absl::Status invalid_argument(const Pieces&... pieces) {
  return absl::InvalidArgumentError(cat(pieces...));
}
template <typename... Pieces>
absl::Status failed_precondition(const Pieces&... pieces) {
  return absl::FailedPreconditionError(cat(pieces...));
}
template <typename... Pieces>
absl::Status unavailable(const Pieces&... pieces) {
  return absl::UnavailableError(cat(pieces...));
}
template <typename... Pieces>
absl::Status unimplemented(const Pieces&... pieces) {
  return absl::UnimplementedError(cat(pieces...));
}
template <typename... Pieces>
absl::Status deadline_exceeded(const Pieces&... pieces) {
  return absl::DeadlineExceededError(cat(pieces...));
}

// Returns `status` with "prefix: " before its text; OK stays OK.
absl::Status annotate(const absl::Status& status, std::string_view prefix);

// Makes the error of `what`, a call that failed with errno `error`: "open /x/y: No such file or directory". If a limit
// of open descriptors or of a file's size is reached, the text names that limit.
absl::Status errno_status(int error, std::string_view what);

// The text of errno `error`, as errno_status() has it.
std::string errno_text(int error);

std::string_view message_of(const absl::Status& status);

// Returns the word in `known` that is nearest to `word` by edit distance, ignoring case, or an empty text if none is
// near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace bascule::inline v0

// Returns early with the error of a Status; binds the value of a StatusOr.
#define BASCULE_TRY(expression)                                                                  \
  do {                                                                                           \
    if (absl::Status bascule_status = (expression); !bascule_status.ok()) return bascule_status; \
  } while (false)
#define BASCULE_CONCAT_INNER(a, b) a##b
#define BASCULE_CONCAT(a, b) BASCULE_CONCAT_INNER(a, b)
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define BASCULE_ASSIGN(declaration, expression) \
  BASCULE_ASSIGN_INNER(BASCULE_CONCAT(bascule_or_, __LINE__), declaration, expression)
#define BASCULE_ASSIGN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                 \
  if (!temporary.ok()) return std::move(temporary).status();     \
  declaration = *std::move(temporary)
// NOLINTEND(bugprone-macro-parentheses)
