// The control protocol's messages, and their CBOR. docs/protocol.md says who sends which when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "transport/endpoint.h"
#include "transport/layout.h"
#include "transport/sender_status.h"
#include "transport/version.h"

namespace bascule {

inline constexpr std::uint32_t kProtocol = 1;

// Over TCP, before any other message (transport/auth.h). Byte strings of 32.
inline constexpr std::size_t kAuthBytes = 32;
struct Challenge {  // sender → worker, first
  std::uint32_t protocol = kProtocol;
  std::string nonce;
};
struct Proof {  // worker → sender
  std::string nonce;
  std::string mac;
};
struct Proven {  // sender → worker
  std::string mac;
};

struct HeldSlot {
  SlotId slot;
  Version version = 0;
};

// worker → sender, first
struct Hello {
  std::uint32_t protocol = kProtocol;
  std::string worker;
  std::uint64_t instance = 0;  // random, one a receiver: the same process coming back
  std::string group;           // empty: none
  std::uint32_t rank = 0, ranks = 1;
  std::int64_t pid = 0;
  std::string host;
  std::string device;          // UUID of the device that it reads on; empty: the host
  Epoch epoch = 0;             // of the sender whose version it serves or knows; 0: none
  Version serving = 0;         // 0: none
  std::vector<HeldSlot> held;  // leases that it still has
  std::optional<std::vector<TensorSpec>> expected;
  bool casts = false;                           // of what it expects, the types may differ where it can cast
  std::vector<std::vector<std::string>> fused;  // lists of tensors that it wants side by side
};

// sender → worker
struct Welcome {
  std::uint64_t id = 0;  // of this membership
  Epoch epoch = 0;
  Layout layout;
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
  std::uint64_t bytes = 0;
  std::optional<std::string> offer;  // of this slot where the worker does not know it, with descriptors
  std::vector<std::uint32_t> slots;  // indices of all that there are; others can be let go of
};
struct Sealed {  // the last byte is in
  Version version = 0;
  std::optional<Digest> digest;
};
struct Commit {
  Version version = 0;
};
struct Abort {
  Version version = 0;
  bool torn = false;  // of a single copy: what the worker serves was half written
};

// worker → sender
struct Ready {  // the worker's back slot is free
  Version version = 0;
  bool follows = false;  // it copies the bytes while they are written: they are better written in parts
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
};
struct Ack {
  Version version = 0;
  double stall_seconds = 0;  // inside commit()
  double seconds = 0;        // from the commit's arrival to the flip
};
struct Released {
  SlotId slot;
  Version version = 0;
};

// Whoever only asks, in place of a hello; answered by a SenderStatus.
struct Inquire {
  std::uint32_t protocol = kProtocol;
};

// both ways
struct Heartbeat {};
struct Bye {
  std::string why;  // empty: there is no more to say
};

using Message = std::variant<Hello, Welcome, Refused, Prepare, Ready, Sealed, Prepared, Failed, Poisoned, Commit, Abort,
                             Ack, Released, Heartbeat, Bye, Challenge, Proof, Proven, Inquire, SenderStatus>;

const char* name_of(const Message&);  // "hello"

// CBOR: a map with the message's name under "type". decode() takes any bytes: malformed, nested deeper than 8, an
// unknown type, a missing or ill-typed key and a value out of range are INVALID_ARGUMENT that names it.
std::vector<std::uint8_t> encode(const Message&);
absl::StatusOr<Message> decode(std::span<const std::uint8_t> bytes);

}  // namespace bascule
