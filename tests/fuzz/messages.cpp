// Feeds the bytes of a control message, as a peer may send them: CBOR, and the messages of the protocol, of the schemes
// and of a sharded trainer's ranks.
//
//   a message that is taken can be written again, and then comes back as it was
//   a list of tensors that is known makes no difference
//   a refusal is INVALID_ARGUMENT, and its text is short and printable
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/offer.h>
#include <bascule/schemes/relay/messages.h>
#include <bascule/sender/ranks/messages.h>
#include <bascule/transport/utf8.h>
#include <bascule/transport/wire/cbor.h>
#include <bascule/transport/wire/messages.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;

// The bytes of what `parse` makes of `bytes` are a fixed point, since writers write each message in one way only.
template <typename Parse>
void come_back(std::string_view bytes, Parse parse) {
  const auto parsed = parse(bytes);
  if (!parsed.ok()) return require_refusal(parsed.status());
  const std::string written = to_bytes(*parsed);
  const auto again = parse(written);
  require(again.ok() && to_bytes(*again) == written, "a scheme's message comes back as it was");
}

void decode_twice(std::span<const std::uint8_t> bytes) {
  KnownTensors known;
  const absl::StatusOr<Message> message = decode(bytes, &known);
  const absl::StatusOr<Message> repeated = decode(bytes, &known);
  require(message.ok() == repeated.ok(), "known tensors make no difference");
  if (!message.ok()) {
    require_refusal(message.status());
    require(message.status().message().size() < 1000, "an error does not repeat a long message");
    require(is_printable({message.status().message().data(), message.status().message().size()}),
            "an error can be printed");
    return;
  }
  const Bytes written = encode(*message);
  require(encode(*repeated) == written, "known tensors make no difference to a message");
  require(check_cbor(written).ok(), "what is written is CBOR");
  const absl::StatusOr<Message> again = decode(written);
  require(again.ok() && again->index() == message->index(), "a message that was taken can be written and taken again");
  require(encode(*again) == written, "a message comes back as it was");
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::decode_twice({data, size});
  fuzz::come_back(bytes, relay::parse_message);
  fuzz::come_back(bytes, nccl::parse_message);
  fuzz::come_back(bytes, nccl::parse_offer);
  fuzz::come_back(bytes, parse_rank_message);
  return 0;
}
