// The control protocol's messages, and their CBOR. docs/design/protocol.md says which end sends which when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/known_tensors.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/sender_status.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

inline constexpr std::uint32_t kProtocol = 3;
inline constexpr std::uint32_t kMaxFrameBytes = 64u << 20;  // of one message
inline constexpr std::size_t kMostCompatibilityKeyBytes = 1024;

// Of a lease, so that the end of one is not taken for that of the next one on the same slot. No two leases that
// begin over one connection have the same; 0: the lease was claimed in the greeting.
using LeaseNumber = std::uint64_t;

struct HeldSlot {
  SlotId slot;
  Version version = 0;
};

// worker → sender, first
struct Hello {
  std::uint32_t protocol = kProtocol;
  std::uint32_t digest_number = kDigestNumber;
  std::string worker;
  std::uint64_t instance = 0;  // random, one a receiver: the same process coming back
  std::string group;           // empty: none
  std::uint32_t rank = 0, ranks = 1;
  std::int64_t pid = 0;
  std::string host;
  std::string device;                              // UUID of the device that it reads on; empty: the host
  Epoch epoch = 0;                                 // of the sender whose version it serves or knows; 0: none
  Version serving = 0;                             // 0: none
  std::vector<HeldSlot> held;                      // leases that it still has
  SharedSpecs expected;                            // null: it takes anything
  bool casts = false;                              // of what it expects, the types may differ where it can cast
  std::vector<std::vector<std::string>> fused;     // lists of tensors that it wants side by side
  std::optional<std::string> compatibility_key{};  // ReceiverOptions::compatibility_key; none: it gave none
};

// A layout as it travels, written once and shared by every message that carries it.
using EncodedLayout = std::shared_ptr<const std::vector<std::uint8_t>>;

// sender → worker
struct Welcome {
  std::uint32_t digest_number = kDigestNumber;
  std::uint64_t id = 0;  // of this membership
  Epoch epoch = 0;
  Layout layout;
  EncodedLayout encoded_layout{};  // written in place of `layout`, where there is one; none once it was read
  DigestMode digest = DigestMode::kOn;
  std::string offer;                 // opaque bytes of the scheme, with descriptors; the lease pipe is the last one
  std::vector<std::uint32_t> slots;  // indices of the slots in the offer
};
struct Refused {
  std::string why;
  bool final = false;  // it will not change by itself: other tensors, another protocol
};
struct Prepare {  // writing begins; the worker's lease on the slot starts here
  Version version = 0;
  SlotId slot;
  LeaseNumber lease = 0;
  std::uint64_t bytes = 0;
  std::optional<std::string> offer;  // of this slot where the worker does not know it, with descriptors
  std::vector<std::uint32_t> slots;  // indices of all that there are; others can be let go of
};
struct Deliver {  // the scheme moves the bytes now, or will soon; sealed{} comes once they have left
  Version version = 0;
  std::string bytes;  // opaque: the scheme's
};
struct Sealed {  // the last byte is in
  Version version = 0;
  std::optional<Digest> digest;
};
struct Decided {
  Version version = 0;
};
struct Abort {
  Version version = 0;
  bool torn = false;  // of a single copy: what the worker serves was half written
};

// worker → sender
struct Ready {  // the worker's back slot is free
  Version version = 0;
  bool copies_behind = false;  // it copies the bytes while they are written: they are better written in pieces
};
struct Prepared {
  Version version = 0;
};
struct Failed {
  Version version = 0;
  std::string why;
};
struct Poisoned {  // it must not be counted on until a new version
  std::string why;
  bool final = false;  // its device is lost: it reads no slot any more, and no version mends it
};
struct Loading {  // the engine has flipped to it and copies it by itself now; an ack follows, or poisoned
  Version version = 0;
};
struct Ack {
  Version version = 0;
  double stall_seconds = 0;  // inside commit()
  double seconds = 0;        // from the arrival of decided to the flip or, where the engine loads, until it has
};
struct Released {
  SlotId slot;
  LeaseNumber lease = 0;  // that the worker was told of last; another one goes on: this crossed its prepare
};

// From a program that only looks, in place of a hello; answered by a SenderStatus.
struct StatusQuery {
  std::uint32_t protocol = kProtocol;
};

// both ways
struct Transport {    // what the scheme's two ends say to each other, with descriptors
  std::string bytes;  // opaque
};
struct Heartbeat {};
struct Bye {
  std::string why;  // empty: there is no more to say
};

using Message =
    std::variant<Hello, Welcome, Refused, Prepare, Ready, Sealed, Prepared, Failed, Poisoned, Decided, Abort, Ack,
                 Released, Heartbeat, Bye, StatusQuery, SenderStatus, Deliver, Transport, Loading>;

const char* name_of(const Message&);  // "hello"

absl::Status check_compatibility_key(std::string_view compatibility_key);  // INVALID_ARGUMENT: too long, or not UTF-8

// A message as it travels. Made once, it can be sent to any number of peers, and all that wait for it share its bytes:
//
//   | bytes: a map, with an encoded layout without the last value | layout |
struct EncodedMessage {
  explicit EncodedMessage(const Message&);
  std::size_t size() const { return bytes.size() + (layout ? layout->size() : 0); }

  const char* name;
  std::vector<std::uint8_t> bytes;
  EncodedLayout layout;  // or null
};

// CBOR: a map with the message's name under "type". decode() takes any bytes: malformed, nested deeper than 8, an
// unknown type, a missing or ill-typed key and a value out of range are INVALID_ARGUMENT that names it. `known`: lists
// of tensors in it that came before are not read again.
EncodedLayout encode(const Layout& layout);
std::vector<std::uint8_t> encode(const Message&);
absl::StatusOr<Message> decode(std::span<const std::uint8_t> bytes, KnownTensors* known = nullptr);

}  // namespace bascule::inline v0
