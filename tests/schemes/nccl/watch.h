// The log of a random run so far, and the first error in it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <bascule/schemes/nccl/messages.h>
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

inline std::string text_of(const GroupMessage& message) {
  constexpr std::array<const char*, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                  "again", "got",   "over", "drop", "dropped", "failed"};
  return cat(kNames[static_cast<std::size_t>(message.kind)], " (group ", message.group, ", delivery ", message.number,
             ", from ", message.from, ")");
}

}  // namespace bascule::inline v0::nccl
