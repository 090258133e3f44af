// Checks of an HTML page that need no browser: its colours and their contrast, and how often a text occurs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::test {

// Returns the page's colours by name ("--ink: #1d2230"), in light or dark mode.
inline std::map<std::string, std::string> colours_of(const std::string& page, bool dark) {
  const std::size_t middle = page.find("prefers-color-scheme: dark"), end = page.find("* { box-sizing");
  const std::string part = dark ? page.substr(middle, end - middle) : page.substr(0, middle);
  std::map<std::string, std::string> colours;
  for (std::size_t at = part.find("--"); at != std::string::npos; at = part.find("--", at + 2)) {
    const std::size_t colon = part.find(": ", at);
    if (colon != std::string::npos && part.size() > colon + 9 && part[colon + 2] == '#' && part[colon + 9] == ';')
      colours[part.substr(at + 2, colon - at - 2)] = part.substr(colon + 2, 7);
  }
  return colours;
}

// Returns the contrast of WCAG 2, from 1 to 21: (lighter + 0.05) / (darker + 0.05), of the relative luminances.
inline double contrast(const std::string& one, const std::string& other) {
  const auto luminance = [](const std::string& colour) {
    double sum = 0;
    for (const auto& [at, weight] : {std::pair(1, 0.2126), std::pair(3, 0.7152), std::pair(5, 0.0722)}) {
      const double value = static_cast<double>(std::strtol(colour.substr(at, 2).c_str(), nullptr, 16)) / 255;
      sum += weight * (value <= 0.03928 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  const double a = luminance(one), b = luminance(other);
  return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
}

// Returns how often `text` occurs in `page`.
inline int count(std::string_view page, std::string_view text) {
  int found = 0;
  for (std::size_t at = page.find(text); at != page.npos; at = page.find(text, at + text.size())) ++found;
  return found;
}

}  // namespace bascule::test
