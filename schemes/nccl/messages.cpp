#include <bascule/schemes/nccl/messages.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/cbor.h>

namespace bascule::inline v0::nccl {
namespace {

using Json = nlohmann::json;

// In the order of GroupMessage::Kind.
constexpr std::array<std::string_view, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                     "again", "got",   "over", "drop", "dropped", "failed"};

constexpr std::size_t kMostBytes = 16u << 10;  // of one message

absl::Status not_a_message() { return invalid_argument("nccl: this is not a message from the other end of nccl"); }

}  // namespace

std::string to_bytes(const GroupMessage& message) {
  const auto* const id = reinterpret_cast<const std::uint8_t*>(message.id.bytes.data());
  const Json map = {{"kind", kNames[static_cast<std::size_t>(message.kind)]},
                    {"group", message.group},
                    {"rank", message.rank},
                    {"ranks", message.ranks},
                    {"id", Json::binary(std::vector<std::uint8_t>(id, id + message.id.bytes.size()))},
                    {"number", message.number},
                    {"from", message.from},
                    {"why", message.why.substr(0, kMostBytes / 2)}};
  std::string bytes;
  Json::to_cbor(map, bytes);
  return bytes;
}

absl::StatusOr<GroupMessage> parse_message(std::string_view bytes) {
  if (bytes.size() > kMostBytes) return not_a_message();
  // from_cbor() throws, even with exceptions off, if a length is larger than memory.
  if (!check_cbor({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}).ok()) return not_a_message();
  const Json map = Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!map.is_object()) return not_a_message();
  const auto number = [&](const char* key, std::uint64_t most) -> std::optional<std::uint64_t> {
    const auto found = map.find(key);
    if (found == map.end() || !found->is_number_unsigned()) return std::nullopt;
    const auto value = found->get<std::uint64_t>();
    return value <= most ? std::optional(value) : std::nullopt;
  };
  const auto name = map.find("kind"), id = map.find("id"), why = map.find("why");
  const auto group = number("group", ~0ULL), delivery = number("number", ~0ULL), from = number("from", ~0ULL);
  const auto rank = number("rank", 1u << 20), ranks = number("ranks", 1u << 20);
  GroupMessage message;
  if (name == map.end() || !name->is_string() || id == map.end() || !id->is_binary() ||
      id->get_binary().size() != message.id.bytes.size() || why == map.end() || !why->is_string() || !group ||
      !delivery || !from || !rank || !ranks)
    return not_a_message();
  const auto known = std::ranges::find(kNames, std::string_view(name->get_ref<const std::string&>()));
  if (known == kNames.end()) return not_a_message();
  message.kind = static_cast<GroupMessage::Kind>(known - kNames.begin());
  message.group = *group;
  message.rank = static_cast<int>(*rank);
  message.ranks = static_cast<int>(*ranks);
  std::ranges::transform(id->get_binary(), message.id.bytes.begin(),
                         [](std::uint8_t byte) { return static_cast<char>(byte); });
  message.number = *delivery;
  message.from = *from;
  message.why = why->get<std::string>();
  return message;
}

}  // namespace bascule::inline v0::nccl
