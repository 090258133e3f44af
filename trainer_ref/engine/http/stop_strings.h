// Stop strings: a text that grows ends before the first of them, and what may become one is held back meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::ref {

// One text. Each call costs time in the length of the stop strings and of the new text, not of all that came before.
class StopStrings {
 public:
  static constexpr std::size_t kMost = 16, kMostBytes = 256;  // strings, and bytes of each

  // None of `strings` is empty. With `included`, the text ends behind the stop string.
  StopStrings(std::shared_ptr<const std::vector<std::string>> strings, bool included)
      : strings_(std::move(strings)), included_(included) {}

  // What has become certain of the text with `more`: all but an end that a stop string may begin with. Empty once one
  // was found.
  std::string push(std::string_view more);
  std::string finish();  // the rest, once nothing follows

  // The one that ended the text: that which begins first, and of several the first in the list.
  const std::optional<std::string>& found() const { return found_; }

 private:
  const std::shared_ptr<const std::vector<std::string>> strings_;  // null: none
  const bool included_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace bascule::ref
