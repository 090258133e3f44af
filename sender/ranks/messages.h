// RankMessage: what rank 0 and the other ranks of a sharded trainer send each other, as CBOR maps in frames of a
// RankLine. docs/design/regions.md draws a send.
//
//   rank → rank 0   shards, mapped, ready, written, digested
//   rank 0 → rank   plan, slot (with descriptors), forget, write, digest, report
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/report.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// A status on the wire.
struct SentStatus {
  std::uint32_t code = 0;  // an absl::StatusCode; 0: OK
  std::string why{};
};
SentStatus sent(const absl::Status& status);
absl::Status received(const SentStatus& status);

struct SentWorker {
  std::string worker;
  std::uint32_t state = 0;
  SentStatus error;
  double seconds = 0, stall_seconds = 0;
  std::optional<BytesRead> bytes{};
};

struct SentUpdate {
  Version version = 0;
  SentStatus status{};
  std::vector<SentWorker> workers{};
  std::vector<std::string> warnings{};
};

// A SendReport on the wire, or the error of a send.
struct SentReport {
  SentStatus error{};
  Epoch epoch = 0;
  Version version = 0;
  std::uint64_t bytes = 0;
  std::optional<Digest> digest{};
  std::vector<double> seconds{};  // in the order of StageSeconds
  std::vector<SentWorker> workers{};
  std::uint32_t expected = 0;
  std::string memory{};
  SentStatus persisted{};
  std::vector<SentUpdate> updates{};
  std::vector<std::string> warnings{};
};
SentReport sent(const absl::StatusOr<SendReport>& report);
absl::StatusOr<SendReport> received(SentReport report);

// Late answers that a process ignores while it waits. A peer that sends more breaks the protocol, and would otherwise
// keep it busy beyond any deadline.
inline constexpr std::size_t kMostUnawaitedMessages = 1000;

// Instead of the number of a call that a late rank has not begun.
inline constexpr std::uint64_t kCallForStep = ~std::uint64_t{0};

struct RankMessage {
  enum class Kind {
    kShards,  // `specs`, `description` and `numbers`: this rank's boxes, each as its tensor's index, offset and shape.
              // Or `status`: why they cannot be sent
    kMapped,  // the slot is mapped, and its shares are written; or `status` says why not. For a slot of several
              // regions: this rank's region is made. `description` is its SlotMemory::place, its memory is a descriptor
    kReady,   // this rank's call `number` has begun: `call` and `step`
    kWritten,   // this rank's part of the slot is written; or `status` says why not
    kDigested,  // this rank has digested its share of the tiles that several ranks write
    kPlan,      // `numbers`: which of its boxes this rank owns. Or `status`: the ranks' shards do not fit together
    kSlot,    // a slot with index `number`, `bytes` bytes after `data_offset`, and its `layout`. Descriptors: the slot,
              // except one of several regions, and the table (shared_table.h)
    kForget,  // slot `number` is no longer used
    kWrite,   // write this rank's part into slot `number`; with totals, if `digest`
    kDigest,  // all ranks have written
    kReport   // the outcome of call `number`; 0: of this and all later calls; kCallForStep: of the call for `step`, if
              // this rank still makes it
  };
  explicit RankMessage(Kind of_kind = Kind::kReady, std::uint64_t with_number = 0)
      : kind(of_kind), number(with_number) {}

  Kind kind;
  std::uint64_t number;
  SentStatus status{};
  std::vector<TensorSpec> specs{};
  std::string description{};
  std::vector<std::int64_t> numbers{};
  std::string call{};
  std::uint64_t step = 0;
  std::optional<Layout> layout{};
  std::uint64_t bytes = 0, data_offset = 0;
  bool digest = false;
  std::optional<SentReport> report{};
};

std::string_view name_of(const RankMessage& message);  // "shards"
std::string to_bytes(const RankMessage& message);
absl::StatusOr<RankMessage> parse_rank_message(
    std::string_view bytes);  // takes any bytes; INVALID_ARGUMENT if no message

}  // namespace bascule::inline v0
