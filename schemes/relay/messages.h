// RelayMessage: what the two ends of a relay send each other. schemes/relay/README.md says which message comes when.
//
//   worker → sender   in place, here, buffers (with descriptors), alone, got, left, cannot
//   sender → worker   show, hide, take (in the bytes of a deliver message), from, over, engine (with descriptors),
//   forget
//
// On the wire a message is a CBOR map.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/scheme.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0::relay {

// A worker copies a version from an engine, given by its membership, or from the trainer.
using SourceId = WorkerId;
inline constexpr SourceId kTrainer = 0;  // no membership has this number

// The names of workers' paths, for people to read.
inline constexpr std::string_view kInPlace = "in place", kByRelay = "relay";

inline constexpr std::size_t kMostBuffers = 8;  // of one engine, shown to others

struct RelayMessage {
  enum class Kind {
    kInPlace,  // this worker reads the slots in place: nothing is delivered to it
    kHere,     // this worker reads on the GPU `place`, and has no receive buffers
    kBuffers,  // this worker copies. Descriptors: its progress page, then its receive buffers, `allocated` bytes each;
               // none if it could not make them, for the reason `why`. One of them has all of `version`, if not 0
    kAlone,    // delivery `number` comes to memory that no other engine can see
    kGot,      // all bytes of delivery `number` are here, or leased; its sources are no longer copied from
    kLeft,     // delivery `number` was refused or given up, or failed after `got`; its sources are no longer read
    kCannot,   // `source` cannot be read for delivery `number`, for the reason `why`: send another source
    kTake,     // get delivery `number` from `source`: copy it or, if `share`, read it where it comes to, and with
               // `verify` digest it there. Other engines copy from the buffers of the versions `spared`
    kFrom,     // copy the rest of delivery `number` from `source`
    kOver,     // delivery `number` was given up
    kEngine,   // the `buffers` message of the engine `source`, with the same descriptors
    kForget,   // the engine `source` is gone
    kShow,     // make receive buffers and show them: other engines of the place share them or, without `share`, may
    kHide      // give the receive buffers up: another engine of the place shows some
  };
  Kind kind = Kind::kInPlace;
  std::uint64_t number = 0;  // of a delivery
  SourceId source = kTrainer;
  bool whole = false;  // the source has all of the version (or no longer has it)
  bool share = false, verify = false;
  bool handed_on = false;  // several engines copy this version, from each other: show small pieces
  Version version = 0;
  std::vector<Version> spared{};
  std::string place{};          // where the buffers are: the GPU's UUID
  std::uint64_t allocated = 0;  // bytes of one buffer, in whole granules
  std::string why{};
};

std::string to_bytes(const RelayMessage& message);
absl::StatusOr<RelayMessage> parse_message(std::string_view bytes);  // takes any bytes; INVALID_ARGUMENT if no message

}  // namespace bascule::inline v0::relay
