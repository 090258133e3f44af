#include "transport/messages.h"

#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "transport/cbor.h"
#include "transport/message_reader.h"
#include "transport/message_writer.h"
#include "transport/text.h"

namespace bascule {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are little-endian, and every hello says so");

using Json = nlohmann::json;

// In the order of Message's alternatives.
constexpr std::array<const char*, std::variant_size_v<Message>> kNames = {
    "hello", "welcome", "refused",  "prepare",   "ready", "sealed",    "prepared", "failed", "poisoned", "commit",
    "abort", "ack",     "released", "heartbeat", "bye",   "challenge", "proof",    "proven", "inquire",  "status"};

template <std::size_t Type>
absl::StatusOr<Message> decode_as(const Json& map) {
  std::variant_alternative_t<Type, Message> message;
  MessageReader reader(kNames[Type], map);
  fields(reader, message);
  if (!reader.status().ok()) return reader.status();
  return Message(std::in_place_index<Type>, std::move(message));
}

template <std::size_t... Types>
constexpr auto decoders(std::index_sequence<Types...>) {
  return std::array{&decode_as<Types>...};
}
constexpr auto kDecoders = decoders(std::make_index_sequence<kNames.size()>());

}  // namespace

const char* name_of(const Message& message) { return kNames[message.index()]; }

std::vector<std::uint8_t> encode(const Message& message) {
  MessageWriter writer;
  writer.constant("type", name_of(message));
  std::visit([&writer](const auto& alternative) { fields(writer, alternative); }, message);
  return Json::to_cbor(writer.take());
}

absl::StatusOr<Message> decode(std::span<const std::uint8_t> bytes) {
  BASCULE_TRY(check_cbor(bytes));
  const Json map = Json::from_cbor(bytes.data(), bytes.data() + bytes.size(), /*strict=*/true,
                                   /*allow_exceptions=*/false);
  if (!map.is_object()) return invalid_argument("a message is a CBOR map, found ", map.type_name());
  const auto type = map.find("type");
  if (type == map.end() || !type->is_string())
    return invalid_argument("a message names its type as text under the key \"type\"; it is missing or no text");
  const std::string& name = type->get_ref<const std::string&>();
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return kDecoders[i](map);
  return invalid_argument("unknown message type ", in_quotes(name), "; protocol ", kProtocol, " has none such");
}

}  // namespace bascule
