// What the fuzz targets share. libFuzzer calls a target's LLVMFuzzerTestOneInput() with one input after another; a
// target reports a defect by ending the process, which require() does with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // NOLINT: libFuzzer's name

namespace bascule::fuzz {

// Ends the process unless `holds`. `what` says what must hold.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: expected that %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// Refusals of input are INVALID_ARGUMENT or one of `others`, and their text is short, whatever the input was.
inline void require_refusal(const absl::Status& status, std::initializer_list<absl::StatusCode> others = {}) {
  bool expected = status.code() == absl::StatusCode::kInvalidArgument;
  for (const absl::StatusCode other : others) expected |= status.code() == other;
  if (!expected) std::fprintf(stderr, "fuzz: %s\n", status.ToString().c_str());
  require(expected, "a refusal has an expected code");
}

// Reads an input from its beginning. When the input has ended, numbers are 0 and texts empty.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }

  std::uint32_t number(std::size_t bytes) {  // little-endian
    std::uint32_t number = 0;
    std::size_t shift = 0;
    for (const std::uint8_t byte : take(bytes)) {
      number |= std::uint32_t{byte} << shift;
      shift += 8;
    }
    return number;
  }

  std::span<const std::uint8_t> take(std::size_t bytes) {
    const auto taken = left_.first(std::min(bytes, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  // Two bytes of length, and that many bytes.
  std::span<const std::uint8_t> piece() { return take(number(2)); }

  // The text before the next zero byte, which is skipped. So an input of several texts can be read in an editor.
  std::string_view text() {
    const std::string_view all(reinterpret_cast<const char*>(left_.data()), left_.size());
    const std::string_view text = all.substr(0, all.find('\0'));
    take(text.size() + 1);
    return text;
  }
  std::string_view rest() {
    const auto all = take(left_.size());
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace bascule::fuzz
