// CopySizes: how much of a version each copy of a relay moves.
//
// Each copy costs some microseconds, so large ones are faster. But an engine that copies from this one gets nothing of
// a copy before its end, so a version that is handed on comes in single pieces. Near the end, copies are small in any
// case, as the last one is digested when nothing else is left to do.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bascule::inline v0::relay {

struct CopySizes {
  std::uint64_t bytes = 0;  // of the version
  std::uint64_t piece = 0;
  bool handed_on = false;

  // How many bytes may be under way when a copy begins: enough to keep a copy engine busy, yet soon over if a source
  // leaves.
  std::uint64_t ahead() const { return handed_on ? 4 * piece : 2 * kLarge * piece; }
  // Where a copy ends that begins at `asked`, if the source has at least one piece more, and `there` bytes in all.
  std::uint64_t end(std::uint64_t asked, std::uint64_t there) const {
    const std::uint64_t least = std::min(asked + piece, bytes), last = kLarge / 2 * piece;
    if (handed_on || bytes - least <= last) return least;
    return std::max(least, std::min({asked + kLarge * piece, there / piece * piece, (bytes - last) / piece * piece}));
  }

 private:
  static constexpr std::uint64_t kLarge = 4;  // pieces
};

}  // namespace bascule::inline v0::relay
