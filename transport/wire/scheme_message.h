// Messages between the two ends of a scheme, as CBOR maps. A scheme lists the fields of its message once, for both
// directions, by the calls in transport/wire/message_fields.h:
//
//   void fields(auto& archive, auto& message) { archive("number", message.number); … }
//
//   bytes = map_of([&](auto& archive) { fields(archive, message); });
//   status = read_map(bytes, [&](auto& archive) { fields(archive, message); });
//
// If memory runs out, both throw std::bad_alloc and leave nothing behind.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/transport/status.h>
#include <bascule/transport/wire/cbor.h>
#include <bascule/transport/wire/message_reader.h>
#include <bascule/transport/wire/message_writer.h>

namespace bascule::inline v0 {

template <typename Fields>
std::string map_of(const Fields& fields) {
  MessageWriter::Bytes bytes;
  MessageWriter writer(bytes);
  fields(writer);
  return {bytes.begin(), bytes.end()};
}

// Takes any bytes, and returns INVALID_ARGUMENT if they are not a map with these fields.
template <typename Fields>
absl::Status read_map(std::string_view bytes, const Fields& fields) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  BASCULE_TRY(check_cbor({first, bytes.size()}));
  const CborValue map(first);
  if (map.kind() != CborValue::Kind::kMap) return invalid_argument("expected a map, found ", map.shown());
  MessageReader reader(map, nullptr);
  fields(reader);
  return reader.status();
}

}  // namespace bascule::inline v0
