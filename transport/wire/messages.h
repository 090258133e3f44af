// The control protocol's messages, and their CBOR. docs/design/protocol.md says when each end sends which.
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
// Both ends keep texts that the other end chose, so each has a limit. A longer text is cut when it is sent, and refused
// when it is received.
inline constexpr std::size_t kMostTextBytes = kMostTensorNameBytes;
inline constexpr std::size_t kMostNameBytes = 256;  // of a worker, group, host or device: refused at both ends
inline constexpr std::size_t kMostCompatibilityKeyBytes = 1024;

// Numbers leases, so that the release of one is not mistaken for the release of the next lease on the same slot. Unique
// per connection; 0 for a lease that was claimed in the greeting.
using LeaseNumber = std::uint64_t;

struct HeldSlot {
  SlotId slot;
  Version version = 0;
};

// A list of tensors in encoded form, made once and shared by every message that carries it: the I/O thread must not
// encode a long one.
using EncodedTensors = std::shared_ptr<const std::vector<std::uint8_t>>;
using EncodedLayout = std::shared_ptr<const std::vector<std::uint8_t>>;

// worker → sender, first
struct Hello {
  std::uint32_t protocol = kProtocol;
  std::uint32_t digest_number = kDigestNumber;
  std::string worker;
  std::uint64_t instance = 0;  // random, one per receiver; identifies the receiver when it reconnects
  std::string group;           // empty: none
  std::uint32_t rank = 0, ranks = 1;
  std::int64_t pid = 0;
  std::string host;
  std::string device;                              // UUID of the device where the worker reads; empty: the host
  Epoch epoch = 0;                                 // of the sender whose version it serves or knows; 0: none
  Version serving = 0;                             // 0: none
  std::vector<HeldSlot> held;                      // leases that it still has
  SharedSpecs expected;                            // null: it takes any tensors
  EncodedTensors encoded_expected{};               // if set, sent instead of `expected`; null in a received message
  bool casts = false;                              // it casts, so the sender's tensors may have other types
  std::vector<std::vector<std::string>> fused;     // lists of tensors that should lie side by side
  std::optional<std::string> compatibility_key{};  // ReceiverOptions::compatibility_key
};

// sender → worker
struct Welcome {
  std::uint32_t digest_number = kDigestNumber;
  std::uint64_t id = 0;  // this membership's number
  Epoch epoch = 0;
  Layout layout;
  EncodedLayout encoded_layout{};  // if set, sent instead of `layout`; null in a received message
  DigestMode digest = DigestMode::kOn;
  std::string offer;                 // the scheme's opaque bytes, with descriptors; the lease pipe is the last
  std::vector<std::uint32_t> slots;  // indices of the slots in the offer
};
struct Refused {
  std::string why;
  bool final = false;  // retrying is useless, for example because the tensors or the protocol differ
};
struct Prepare {  // writing begins; the worker's lease on the slot starts here
  Version version = 0;
  SlotId slot;
  LeaseNumber lease = 0;
  std::uint64_t bytes = 0;
  std::optional<std::string> offer;  // of this slot, if the worker does not know it; with descriptors
  std::vector<std::uint32_t> slots;  // indices of all existing slots; others can be unmapped
};
struct Deliver {  // the scheme moves the bytes now or soon; sealed{} follows once they have left
  Version version = 0;
  std::string bytes;  // opaque, from the scheme
};
struct Sealed {  // the last byte is written
  Version version = 0;
  std::optional<Digest> digest;
  std::optional<bool> decided{};  // true: no `decided` follows; once the version is prepared, it is decided
};
struct Decided {
  Version version = 0;
};
struct Abort {
  Version version = 0;
  bool torn = false;  // with a single copy: the worker serves half-written bytes
};

// worker → sender
struct Ready {  // the worker's back slot is free
  Version version = 0;
  bool copies_behind = false;  // it copies bytes while they are written, so they should be written in pieces
};
struct Prepared {
  Version version = 0;
  std::optional<BytesRead> bytes{};
};
struct Failed {
  Version version = 0;
  std::string why;
};
struct Poisoned {  // the worker must not be used until a new version
  std::string why;
  bool final = false;  // its device is lost: it reads no slot any more, and no version cures it
};
struct Loading {  // the engine has flipped to the version and now loads it by itself; ack or poisoned follows
  Version version = 0;
};
struct Ack {
  Version version = 0;
  double stall_seconds = 0;  // inside commit()
  double seconds = 0;        // from the arrival of decided to the flip, or to the end of the engine's load
};
struct Released {
  SlotId slot;
  LeaseNumber lease = 0;  // the last lease that the worker knew of; a newer one on the slot is not released
};

// A program that only reads the status sends this instead of a hello, and gets a SenderStatus.
struct StatusQuery {
  std::uint32_t protocol = kProtocol;
};

// Another rank of a sharded trainer sends this to rank 0 instead of a hello, and gets a RankWelcome with one end of a
// socket, or refused. The ranks' own messages go over that socket (sender/ranks/messages.h).
struct RankHello {
  std::uint32_t protocol = kProtocol;
  std::uint32_t rank = 0, ranks = 1;  // 0 < rank < ranks
  std::int64_t pid = 0;
};
struct RankWelcome {
  Epoch epoch = 0;
};

// both ways
struct Transport {    // between the scheme's two ends, with descriptors
  std::string bytes;  // opaque
};
struct Heartbeat {};
struct Bye {
  std::string why;  // may be empty
};

using Message = std::variant<Hello, Welcome, Refused, Prepare, Ready, Sealed, Prepared, Failed, Poisoned, Decided,
                             Abort, Ack, Released, Heartbeat, Bye, StatusQuery, SenderStatus, Deliver, Transport,
                             Loading, RankHello, RankWelcome>;

const char* name_of(const Message&);  // "hello"

absl::Status check_worker_name(std::string_view name);  // error if it is too long or not printable; also for groups
absl::Status check_compatibility_key(std::string_view compatibility_key);  // error if it is too long or not UTF-8

// An encoded message. It can be sent to any number of peers, whose queues share its bytes:
//
//   | bytes: a map, without its last value if that is encoded already | last |
struct EncodedMessage {
  explicit EncodedMessage(const Message&);
  std::size_t size() const { return bytes.size() + (last ? last->size() : 0); }

  const char* name;
  std::vector<std::uint8_t> bytes;
  std::shared_ptr<const std::vector<std::uint8_t>> last;  // an EncodedLayout or EncodedTensors, or null
};

// A message is a CBOR map, with its name under "type". decode() may be given any bytes, and returns INVALID_ARGUMENT if
// they are malformed, nest deeper than 8, or have an unknown type, a missing or ill-typed key, or a value out of range.
// A tensor list that is in `known` is not decoded again.
EncodedLayout encode(const Layout& layout);
EncodedTensors encode(const std::vector<TensorSpec>& tensors);
std::vector<std::uint8_t> encode(const Message&);
absl::StatusOr<Message> decode(std::span<const std::uint8_t> bytes, KnownTensors* known = nullptr);

}  // namespace bascule::inline v0
