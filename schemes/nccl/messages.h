// GroupMessage: what the two ends of nccl send each other. schemes/nccl/README.md says which message comes when.
//
//   sender → worker   ask, make, warm, deliver (in the bytes of a deliver message), again, over, drop
//   worker → sender   ready, made, warmed, got, dropped, failed
//
// On the wire a message is a CBOR map.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/library.h>

namespace bascule::inline v0::nccl {

using CommGroupId = std::uint64_t;  // of one communicator; a sender never reuses a number

struct GroupMessage {
  enum class Kind {
    kAsk,      // can you join this group?
    kReady,    // yes
    kMake,     // join it: `rank` of `ranks`, by `id`
    kMade,     // joined
    kWarm,     // take part in a broadcast without data
    kWarmed,   // done
    kDeliver,  // delivery `number` begins at byte `from`, in this group
    kAgain,    // delivery `number` continues at byte `from`, in this group
    kGot,      // all bytes of delivery `number` are here
    kOver,     // delivery `number` was given up
    kDrop,     // leave this group, at once
    kDropped,  // left; the first `from` bytes of delivery `number`, under way there, are here
    kFailed    // this group broke here, for the reason `why`; drop it. With `number`: that delivery is not taken here
  };
  Kind kind = Kind::kAsk;
  CommGroupId group = 0;
  int rank = 0, ranks = 0;
  UniqueId id{};
  std::uint64_t number = 0;  // of a delivery; 0: none
  std::uint64_t from = 0;    // bytes
  std::string why{};
};

std::string to_bytes(const GroupMessage& message);
absl::StatusOr<GroupMessage> parse_message(std::string_view bytes);  // takes any bytes; INVALID_ARGUMENT if no message

}  // namespace bascule::inline v0::nccl
