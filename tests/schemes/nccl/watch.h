// What a run at random has said so far, and the first thing that was wrong in it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <bascule/schemes/nccl/words.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

struct Watch {
  std::string wrong, trace;

  void expect(bool holds, std::string_view what) {
    if (!holds && wrong.empty()) wrong = what;
  }
  template <typename... Parts>
  void say(const Parts&... parts) {
    trace += cat(parts..., "\n");
  }
};

inline std::string text_of(const Word& word) {
  constexpr std::array<const char*, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                  "again", "got",   "over", "drop", "dropped", "failed"};
  return cat(kNames[static_cast<std::size_t>(word.kind)], " (group ", word.group, ", delivery ", word.number, ", from ",
             word.from, ")");
}

}  // namespace bascule::inline v0::nccl
