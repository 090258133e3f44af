// "Did you mean": appended to an error about an unknown word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// Returns "; did you mean PREFIXword?" with the word in `known` that is nearest to `word`, or an empty text if none is
// near.
inline std::string did_you_mean(std::string_view word, std::span<const std::string> known,
                                std::string_view prefix = "") {
  const std::string_view best = nearest(word, std::vector<std::string_view>(known.begin(), known.end()));
  return best.empty() ? "" : cat("; did you mean ", prefix, best, "?");
}

}  // namespace bascule::inline v0
