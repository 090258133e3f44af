#include <bascule/schemes/relay/messages.h>

#include <algorithm>
#include <array>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/scheme_message.h>

namespace bascule::inline v0::relay {
namespace {

// In the order of RelayMessage::Kind.
constexpr std::array<std::string_view, 14> kNames = {"in place", "here",   "buffers", "alone", "got",
                                                     "left",     "cannot", "take",    "from",  "over",
                                                     "engine",   "forget", "show",    "hide"};

constexpr std::size_t kMostBytes = 16u << 10;  // of one message
constexpr std::size_t kMostSpared = 64;

void fields(auto& archive, auto& kind, auto& message) {
  archive("kind", kind);
  archive("number", message.number);
  archive("source", message.source);
  archive("whole", message.whole);
  archive("share", message.share);
  archive("verify", message.verify);
  archive("handed_on", message.handed_on);
  archive("version", message.version);
  archive("spared", message.spared);
  archive.bytes("place", message.place);
  archive("allocated", message.allocated);
  archive.text("why", message.why);
}

}  // namespace

std::string to_bytes(const RelayMessage& message) {
  const std::string kind(kNames[static_cast<std::size_t>(message.kind)]);
  return map_of([&](auto& archive) { fields(archive, kind, message); });
}

absl::StatusOr<RelayMessage> parse_message(std::string_view bytes) {
  RelayMessage message;
  std::string kind;
  if (bytes.size() > kMostBytes || !read_map(bytes, [&](auto& archive) { fields(archive, kind, message); }).ok() ||
      message.spared.size() > kMostSpared || std::ranges::find(kNames, kind) == kNames.end())
    return invalid_argument("this is not a message from the other end of a relay");
  message.kind = static_cast<RelayMessage::Kind>(std::ranges::find(kNames, kind) - kNames.begin());
  return message;
}

}  // namespace bascule::inline v0::relay
