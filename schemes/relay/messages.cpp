#include <bascule/schemes/relay/messages.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/cbor.h>

namespace bascule::inline v0::relay {
namespace {

using Json = nlohmann::json;

// In the order of RelayMessage::Kind.
constexpr std::array<std::string_view, 11> kNames = {"in place", "buffers", "alone", "got",    "left",  "cannot",
                                                     "take",     "from",    "over",  "engine", "forget"};

constexpr std::size_t kMostBytes = 16u << 10;  // of one message
constexpr std::size_t kMostSpared = 64;

}  // namespace

std::string to_bytes(const RelayMessage& message) {
  const Json map = {{"kind", kNames[static_cast<std::size_t>(message.kind)]},
                    {"number", message.number},
                    {"source", message.source},
                    {"whole", message.whole},
                    {"spared", message.spared},
                    {"place", Json::binary({message.place.begin(), message.place.end()})},
                    {"allocated", message.allocated},
                    {"why", message.why.substr(0, kMostBytes / 2)}};
  std::string bytes;
  Json::to_cbor(map, bytes);
  return bytes;
}

absl::StatusOr<RelayMessage> parse_message(std::string_view bytes) {
  const absl::Status none = invalid_argument("this is not a message from the other end of a relay");
  if (bytes.size() > kMostBytes) return none;
  // from_cbor() throws, even with exceptions off, if a length is larger than memory.
  if (!check_cbor({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}).ok()) return none;
  const Json map = Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!map.is_object()) return none;
  for (const char* number : {"number", "source", "allocated"})
    if (!map.contains(number) || !map[number].is_number_unsigned()) return none;
  for (const char* text : {"kind", "why"})
    if (!map.contains(text) || !map[text].is_string()) return none;
  if (!map.contains("whole") || !map["whole"].is_boolean() || !map.contains("place") || !map["place"].is_binary() ||
      !map.contains("spared") || !map["spared"].is_array() || map["spared"].size() > kMostSpared)
    return none;
  if (!std::ranges::all_of(map["spared"], [](const Json& each) { return each.is_number_unsigned(); })) return none;
  const auto known = std::ranges::find(kNames, std::string_view(map["kind"].get_ref<const std::string&>()));
  if (known == kNames.end()) return none;
  const auto& place = map["place"].get_binary();
  return RelayMessage{.kind = static_cast<RelayMessage::Kind>(known - kNames.begin()),
                      .number = map["number"].get<std::uint64_t>(),
                      .source = map["source"].get<SourceId>(),
                      .whole = map["whole"].get<bool>(),
                      .spared = map["spared"].get<std::vector<Version>>(),
                      .place = std::string(place.begin(), place.end()),
                      .allocated = map["allocated"].get<std::uint64_t>(),
                      .why = map["why"].get<std::string>()};
}

}  // namespace bascule::inline v0::relay
