#include <bascule/transport/status.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"

namespace bascule::inline v0 {
namespace {

// How many letters must be inserted, removed, changed, or swapped with their neighbour (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({changed, row[j] + 1, above[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

// The limit that `error` reports, with its value and what to do; empty for other errors.
std::string which_limit(int error) {
  rlimit limit{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return cat("; RLIMIT_FSIZE (ulimit -f) of this process is ", limit.rlim_cur, " bytes: raise it");
  if (error == EFBIG) return "; the file system's limit of a file's size is reached: choose another one";
  if (error == ENFILE)
    return "; the system's limit, fs.file-max, is reached: raise it, or close files of other programs";
  if ((error != EMFILE && error != ETOOMANYREFS) || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return cat(error == ETOOMANYREFS ? "; too many descriptors of this user are on their way between processes" : "",
             "; RLIMIT_NOFILE (ulimit -n) of pid ", ::getpid(), " is ", limit.rlim_cur,
             ": raise it before that program starts",
             limit.rlim_cur < limit.rlim_max ? cat(", to at most ", limit.rlim_max, " without a privilege") : "");
}

}  // namespace

absl::Status annotate(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), cat(prefix, ": ", message_of(status)));
  status.ForEachPayload(
      [&annotated](absl::string_view type, const absl::Cord& payload) { annotated.SetPayload(type, payload); });
  return annotated;
}

absl::Status errno_status(int error, std::string_view what) {
  return {absl::ErrnoToStatusCode(error), cat(what, ": ", errno_text(error))};
}

std::string errno_text(int error) {
  // Like absl::ErrnoToStatus(), whose table of texts ThreadSanitizer does not know.
  std::array<char, 256> text{};
  return cat(::strerror_r(error, text.data(), text.size()), which_limit(error));
}

std::string_view message_of(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known) {
  const std::string lower = absl::AsciiStrToLower(status_internal::piece(word));
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(lower, absl::AsciiStrToLower(status_internal::piece(candidate)));
    const std::size_t near = (std::max(word.size(), candidate.size()) + 2) / 3;  // one letter in three
    if (distance <= near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace bascule::inline v0
