// Splits the bytes of a stream into lines of bounded length.
//
// Threads: one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bascule::ref {

class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 8192;  // bytes; a longer line is split into several

  // Returns the lines that `bytes` completes, without their newlines.
  std::vector<std::string> add(std::string_view bytes) {
    std::vector<std::string> lines;
    for (std::size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      append(bytes.substr(0, end), lines);
      lines.push_back(std::move(rest_));
      rest_.clear();
    }
    append(bytes, lines);
    return lines;
  }

  // Call this when the stream has ended. Returns the bytes after the last newline.
  std::string finish() {
    std::string last = std::move(rest_);
    rest_.clear();
    return last;
  }

 private:
  void append(std::string_view piece, std::vector<std::string>& lines) {
    while (rest_.size() + piece.size() > kLongest) {
      const std::size_t taken = kLongest - rest_.size();
      rest_.append(piece.substr(0, taken));
      piece.remove_prefix(taken);
      lines.push_back(std::move(rest_));
      rest_.clear();
    }
    rest_.append(piece);
  }

  std::string rest_;
};

}  // namespace bascule::ref
