#include <bascule/transport/wire/messages.h>

#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>
#include <bascule/transport/wire/cbor.h>
#include <bascule/transport/wire/message_reader.h>
#include <bascule/transport/wire/message_writer.h>

namespace bascule::inline v0 {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are little-endian, and every hello says so");

// In the order of Message's alternatives.
constexpr std::array<const char*, std::variant_size_v<Message>> kNames = {
    "hello",    "welcome", "refused",   "prepare", "ready",      "sealed",      "prepared", "failed",
    "poisoned", "decided", "abort",     "ack",     "released",   "heartbeat",   "bye",      "status_query",
    "status",   "deliver", "transport", "loading", "rank_hello", "rank_welcome"};

template <std::size_t Type>
absl::StatusOr<Message> decode_as(MessageReader& reader) {
  std::variant_alternative_t<Type, Message> message;
  fields(reader, message);
  if (!reader.status().ok()) return reader.status();
  return Message(std::in_place_index<Type>, std::move(message));
}

template <std::size_t... Types>
constexpr auto decoders(std::index_sequence<Types...>) {
  return std::array{&decode_as<Types>...};
}
constexpr auto kDecoders = decoders(std::make_index_sequence<kNames.size()>());

// Adds a key of fewer than 24 bytes to an encoded map of fewer than 23 keys; its value must follow. The first byte of a
// map counts its keys, and the first byte of a text counts its bytes (RFC 8949, 3.1).
void add_key(std::vector<std::uint8_t>& map, std::string_view key) {
  constexpr std::uint8_t kText = 0x60;
  ++map.front();
  map.push_back(static_cast<std::uint8_t>(kText + key.size()));
  map.insert(map.end(), key.begin(), key.end());
}

}  // namespace

const char* name_of(const Message& message) { return kNames[message.index()]; }

absl::Status check_worker_name(std::string_view name) {
  if (!is_printable(name))
    return invalid_argument("expected a name in UTF-8 without control characters, found ", in_quotes(printable(name)));
  if (name.size() <= kMostNameBytes) return absl::OkStatus();
  return invalid_argument("expected a name of ", kMostNameBytes, " bytes at most, found ", name.size(), ": ",
                          in_quotes(name), "; give it a shorter one");
}

absl::Status check_compatibility_key(std::string_view compatibility_key) {
  if (compatibility_key.size() <= kMostCompatibilityKeyBytes && is_utf8(compatibility_key)) return absl::OkStatus();
  return invalid_argument("compatibility_key: expected UTF-8 of ", kMostCompatibilityKeyBytes, " bytes at most, found ",
                          compatibility_key.size(), " bytes",
                          is_utf8(compatibility_key) ? "; give a hash of it" : " that are not UTF-8");
}

EncodedLayout encode(const Layout& layout) {
  MessageWriter::Bytes bytes;
  MessageWriter::write(bytes, layout);
  return std::make_shared<const MessageWriter::Bytes>(std::move(bytes));
}

EncodedTensors encode(const std::vector<TensorSpec>& tensors) {
  MessageWriter::Bytes bytes;
  MessageWriter::write(bytes, tensors);
  return std::make_shared<const MessageWriter::Bytes>(std::move(bytes));
}

EncodedMessage::EncodedMessage(const Message& message) : name(name_of(message)) {
  std::string_view key = "layout";
  if (const auto* const welcome = std::get_if<Welcome>(&message)) last = welcome->encoded_layout;
  if (const auto* const status = std::get_if<SenderStatus>(&message)) last = status->encoded_layout;
  if (const auto* const hello = std::get_if<Hello>(&message)) {
    last = hello->encoded_expected;
    key = "expected";
  }
  MessageWriter writer(bytes, last ? key : "");
  writer.constant("type", name);
  std::visit([&writer](const auto& alternative) { fields(writer, alternative); }, message);
  if (last) add_key(bytes, key);
}

std::vector<std::uint8_t> encode(const Message& message) {
  EncodedMessage encoded(message);
  if (encoded.last) encoded.bytes.insert(encoded.bytes.end(), encoded.last->begin(), encoded.last->end());
  return std::move(encoded.bytes);
}

absl::StatusOr<Message> decode(std::span<const std::uint8_t> bytes, KnownTensors* known) {
  BASCULE_TRY(check_cbor(bytes));
  const CborValue map(bytes.data());
  if (map.kind() != CborValue::Kind::kMap) return invalid_argument("a message is a CBOR map, found ", map.shown());
  MessageReader reader(map, known);
  const std::optional<std::string_view> type = reader.type();
  if (!type)
    return invalid_argument("a message names its type as text under the key \"type\"; it is missing or not text");
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (*type == kNames[i]) return kDecoders[i](reader);
  return invalid_argument("unknown message type ", in_quotes(*type), "; protocol ", kProtocol, " has none such");
}

}  // namespace bascule::inline v0
