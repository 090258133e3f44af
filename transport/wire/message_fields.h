// The fields of each message, listed once: the writer and the reader both walk this list.
//
//   archive("key", member)              the value of a key; a std::optional may be missing. A text has at most
//                                       kMostTextBytes
//   archive.bytes("key", member)        as a byte string rather than text
//   archive.text("key", member)         text for people; a reader escapes its control characters
//   archive.constant("key", "text")     written as it stands; a reader refuses any other text
//   archive.require("key", ok, "must")  a reader refuses the message unless `ok`
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <bascule/transport/utf8.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// A Layout's parts, as they are read.
struct LayoutParts {
  std::vector<Placement> tensors;
  std::vector<Alias> aliases;
  std::uint64_t bytes = 0;
  std::string description;
  std::optional<Division> division;
};
// The parts of a layout that is written, and outlives them.
struct PartsOfLayout {
  std::span<const Placement> tensors;
  std::span<const Alias> aliases;
  std::uint64_t bytes = 0;
  const std::string& description;
  const std::optional<Division>& division;
};
template <typename T>
concept IsLayoutParts = Is<T, LayoutParts> || Is<T, PartsOfLayout>;

void name_limit(auto& archive, const char* key, std::string_view name) {
  archive.require(key, name.size() <= kMostNameBytes, "must have 256 bytes at most");
}

void fields(auto& archive, Is<SlotId> auto& slot) {
  archive("epoch", slot.epoch);
  archive("index", slot.index);
}
void fields(auto& archive, Is<BytesRead> auto& bytes) {
  archive("read", bytes.read);
  archive("verified", bytes.verified);
  archive.require("verified", bytes.verified <= bytes.read, "must be at most read");
}
void fields(auto& archive, Is<HeldSlot> auto& held) {
  archive("slot", held.slot);
  archive("version", held.version);
}
void fields(auto& archive, Is<TensorSpec> auto& spec) {
  archive("name", spec.name);
  archive.require("name", !spec.name.empty(), "must not be empty");
  archive("dtype", spec.dtype);
  archive("shape", spec.shape);
  archive.require("shape", checked_byte_count(spec.name, spec.dtype, spec.shape).ok(),
                  "must have no negative size and at most 2^62 bytes in all, sizes of 0 not counted");
}
void fields(auto& archive, Is<Placement> auto& tensor) {
  fields(archive, tensor.spec);
  archive("offset", tensor.offset);
  archive("bytes", tensor.bytes);
}
void fields(auto& archive, Is<Alias> auto& alias) {
  archive("name", alias.name);
  archive("tensor", alias.tensor);
}
void fields(auto& archive, Is<Cut> auto& cut) {
  archive("pieces", cut.pieces);
  archive("regions", cut.regions);
  archive("bounds", cut.bounds);
}
void fields(auto& archive, Is<Division> auto& division) {
  archive("regions", division.regions);
  archive("granule", division.granule);
  archive("cuts", division.cuts);
  archive("cut_of", division.cut_of);
}
void fields(auto& archive, IsLayoutParts auto& layout) {
  archive("aliases", layout.aliases);
  archive("bytes", layout.bytes);
  archive("division", layout.division);
  archive.bytes("description", layout.description);  // UTF-8, and longer than the texts of a message
  archive("tensors", layout.tensors);                // last, so that a test can make the list longer
}

void fields(auto& archive, Is<Hello> auto& hello) {
  archive("protocol", hello.protocol);
  if (hello.protocol != kProtocol) return;  // another protocol's fields are unknown here
  archive("digest_number", hello.digest_number);
  if (hello.digest_number != kDigestNumber) return;  // a wrong number is enough to refuse it
  archive.constant("byte_order", "little");
  archive("worker", hello.worker);
  archive.require("worker", !hello.worker.empty(), "must not be empty");
  name_limit(archive, "worker", hello.worker);
  archive.require("worker", is_printable(hello.worker), "must have no control characters");
  archive("instance", hello.instance);
  archive("group", hello.group);
  name_limit(archive, "group", hello.group);
  archive.require("group", is_printable(hello.group), "must have no control characters");
  archive("rank", hello.rank);
  archive("ranks", hello.ranks);
  archive.require("rank", hello.rank < hello.ranks, "must be less than ranks");
  archive("pid", hello.pid);
  archive.require("pid", hello.pid >= 0, "must not be negative");
  archive.text("host", hello.host);
  name_limit(archive, "host", hello.host);
  archive.text("device", hello.device);
  name_limit(archive, "device", hello.device);
  archive("epoch", hello.epoch);
  archive("serving", hello.serving);
  archive("held", hello.held);
  archive("expected", hello.expected);
  archive("casts", hello.casts);
  archive("fused", hello.fused);
  archive("compatibility_key", hello.compatibility_key);
  archive.require("compatibility_key",
                  !hello.compatibility_key || hello.compatibility_key->size() <= kMostCompatibilityKeyBytes,
                  "must have 1 KiB at most");
}
void fields(auto& archive, Is<Welcome> auto& welcome) {
  archive("digest_number", welcome.digest_number);
  archive("id", welcome.id);
  archive("epoch", welcome.epoch);
  archive("layout", welcome.layout);
  archive("digest", welcome.digest);
  archive.bytes("offer", welcome.offer);
  archive("slots", welcome.slots);
}
void fields(auto& archive, Is<Refused> auto& refused) {
  archive.text("why", refused.why);
  archive("final", refused.final);
}
void fields(auto& archive, Is<Prepare> auto& prepare) {
  archive("version", prepare.version);
  archive("slot", prepare.slot);
  archive("lease", prepare.lease);
  archive("bytes", prepare.bytes);
  archive.bytes("offer", prepare.offer);
  archive("slots", prepare.slots);
}
void fields(auto& archive, Is<Ready> auto& ready) {
  archive("version", ready.version);
  archive("copies_behind", ready.copies_behind);
}
void fields(auto& archive, Is<Deliver> auto& deliver) {
  archive("version", deliver.version);
  archive.bytes("bytes", deliver.bytes);
}
void fields(auto& archive, Is<Transport> auto& transport) { archive.bytes("bytes", transport.bytes); }
void fields(auto& archive, Is<Sealed> auto& sealed) {
  archive("version", sealed.version);
  archive("digest", sealed.digest);
  archive("decided", sealed.decided);
}
void fields(auto& archive, Is<Prepared> auto& prepared) {
  archive("version", prepared.version);
  archive("bytes", prepared.bytes);
}
void fields(auto& archive, Is<Failed> auto& failed) {
  archive("version", failed.version);
  archive.text("why", failed.why);
}
void fields(auto& archive, Is<Poisoned> auto& poisoned) {
  archive.text("why", poisoned.why);
  archive("final", poisoned.final);
}
void fields(auto& archive, Is<Decided> auto& decided) { archive("version", decided.version); }
void fields(auto& archive, Is<Abort> auto& abort) {
  archive("version", abort.version);
  archive("torn", abort.torn);
}
void fields(auto& archive, Is<Loading> auto& loading) { archive("version", loading.version); }
void fields(auto& archive, Is<Ack> auto& ack) {
  archive("version", ack.version);
  archive("stall_seconds", ack.stall_seconds);
  archive("seconds", ack.seconds);
}
void fields(auto& archive, Is<Released> auto& released) {
  archive("slot", released.slot);
  archive("lease", released.lease);
}
void fields(auto&, Is<Heartbeat> auto&) {}
void fields(auto& archive, Is<Bye> auto& bye) { archive.text("why", bye.why); }

void fields(auto& archive, Is<RankHello> auto& hello) {
  archive("protocol", hello.protocol);
  if (hello.protocol != kProtocol) return;  // another protocol's fields are unknown here
  archive("rank", hello.rank);
  archive("ranks", hello.ranks);
  archive.require("rank", hello.rank > 0 && hello.rank < hello.ranks, "must be from 1 to ranks - 1");
  archive("pid", hello.pid);
  archive.require("pid", hello.pid >= 0, "must not be negative");
}
void fields(auto& archive, Is<RankWelcome> auto& welcome) { archive("epoch", welcome.epoch); }

void fields(auto& archive, Is<StatusQuery> auto& query) { archive("protocol", query.protocol); }
void fields(auto& archive, Is<WorkerStatus> auto& worker) {
  archive("worker", worker.worker);
  archive("pid", worker.pid);
  archive("host", worker.host);
  archive("group", worker.group);
  archive("rank", worker.rank);
  archive("state", worker.state);
  archive("path", worker.path);
  archive("serving", worker.serving);
  archive("leases", worker.leases);
  archive("why", worker.why);
  archive("bytes", worker.bytes);
}
void fields(auto& archive, Is<SlotStatus> auto& slot) {
  archive("index", slot.index);
  archive("state", slot.state);
  archive("version", slot.version);
  archive("digest", slot.digest);
  archive("holders", slot.holders);
}
void fields(auto& archive, Is<RankStatus> auto& rank) {
  archive("rank", rank.rank);
  archive("pid", rank.pid);
  archive("state", rank.state);
  archive("gone_seconds", rank.gone_seconds);
  archive("bytes", rank.bytes);
}
void fields(auto& archive, Is<SenderStatus> auto& status) {
  archive("scheme", status.scheme);
  archive("pid", status.pid);
  archive("epoch", status.epoch);
  archive("version", status.version);
  archive("digest", status.digest);
  archive("layout", status.layout);
  archive("workers", status.workers);
  archive("slots", status.slots);
  archive("ranks", status.ranks);
  archive.bytes("offer", status.offer);
  archive("offered", status.offered);
}

}  // namespace bascule::inline v0
