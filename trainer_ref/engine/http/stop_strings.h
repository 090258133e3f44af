// Stop strings: a growing text ends before the first of them, and text that may become one is held back meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::ref {

// Finds stop strings in one text. The time of a call depends on the lengths of the stop strings and of the new text,
// not on how long the text is already.
class StopStrings {
 public:
  static constexpr std::size_t kMost = 16, kMostBytes = 256;  // strings, and bytes of each

  // None of `strings` is empty. With `included`, the text ends after the stop string.
  StopStrings(std::shared_ptr<const std::vector<std::string>> strings, bool included)
      : strings_(std::move(strings)), included_(included) {}

  // Returns the text that `more` makes certain: all but an end with which a stop string may begin. Empty once a stop
  // string was found.
  std::string push(std::string_view more);
  // Like push(), but no stop string ends within `more`. One that begins there may end in what push() adds later.
  std::string pass(std::string_view more);
  std::string finish();  // returns the rest, once nothing follows

  // The stop string that ended the text: the one that begins first; of several that begin there, the first in the list.
  const std::optional<std::string>& found() const { return found_; }

 private:
  const std::shared_ptr<const std::vector<std::string>> strings_;  // null: none
  const bool included_;
  std::string release();

  std::string held_;
  std::size_t passed_ = 0;  // bytes of held_ within which no stop string ends
  std::optional<std::string> found_;
};

}  // namespace bascule::ref
