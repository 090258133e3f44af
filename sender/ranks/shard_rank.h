// ShardRank: the sender of any rank of a sharded trainer but rank 0. It joins rank 0, writes its boxes into the slots
// that rank 0 shows, and gets rank 0's reports. It knows no workers. It has no thread: everything happens
// inside the public calls, and each wait has a deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/options.h>
#include <bascule/sender/ranks/messages.h>
#include <bascule/sender/ranks/rank_line.h>
#include <bascule/sender/ranks/region_packing.h>
#include <bascule/sender/ranks/shard_packing.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0 {

class ShardRank {
 public:
  // INVALID_ARGUMENT: the endpoint is malformed, or not of this host, or the rank is not below the number of ranks.
  // RESOURCE_EXHAUSTED: no thread can be started.
  static absl::StatusOr<std::unique_ptr<ShardRank>> make(SenderOptions options);
  ShardRank(Endpoint endpoint, const Scheme& scheme, SenderOptions options);

  // See Sender::register_shards().
  absl::Status register_shards(std::unique_ptr<ShardSource> source, std::string description, absl::Duration timeout);
  // Returns once this rank's boxes are in the slot, and may change again.
  absl::Status stage(const std::string& call, std::uint64_t step);
  std::uint32_t rank() const { return options_.rank; }
  bool pending() const { return pending_; }
  // Rank 0's report of the call that stage() began. DEADLINE_EXCEEDED leaves it pending.
  absl::StatusOr<SendReport> settled(Deadline deadline);
  // A blocking call's: rank 0 has a deadline for each of its steps, and this is their sum.
  absl::StatusOr<SendReport> settled();
  Version version() const { return version_; }

 private:
  struct Slot {
    Mapping mapping{};
    std::uint64_t data_offset = 0, bytes = 0;
    std::optional<SharedTable> table{};
    SlotMemory region{};                       // this rank's own, if the slot consists of several
    std::unique_ptr<DeviceTable> on_device{};  // the region's part of the table, if a device writes that
    std::span<std::byte> writable() { return mapping.writable().subspan(data_offset, bytes); }
  };

  void trace(std::string_view direction, std::string_view message) const;
  absl::Status say(const RankMessage& message, std::span<const int> descriptors = {});
  absl::Status answer(RankMessage::Kind kind, const absl::Status& status);
  // Does what rank 0 says, until that is a message of this kind, or the report of this call.
  absl::StatusOr<RankMessage> obey_until(RankMessage::Kind kind, Deadline deadline);
  absl::Status take_slot(RankMessage& message, std::vector<UniqueFd> descriptors);
  absl::Status map_slot(RankMessage& message, std::vector<UniqueFd> descriptors);
  absl::Status make_region(RankMessage& message, std::span<const UniqueFd> descriptors);
  absl::Status plan_packing();  // does nothing if the plan is still right
  absl::Status write(const RankMessage& message);
  absl::Status write_part(RankMessage& message);
  absl::Status name_missing_ranks(const absl::Status& otherwise) const;
  absl::Status lose(const absl::Status& why);
  absl::Status reason_of_rank_0(const absl::Status& otherwise);
  absl::Duration longest_send() const;

  const Endpoint endpoint_;
  const Scheme& scheme_;
  SenderOptions options_;
  kernels::ThreadPool pool_;
  std::optional<RankLine> line_;
  absl::Status lost_;  // why rank 0 cannot be reached any more
  std::optional<HeldShards> held_;
  std::vector<std::uint32_t> owned_;
  std::optional<Layout> layout_;
  bool planned_ = false;  // for layout_ and the shards' present strides
  std::optional<ShardPacking> packing_;
  std::unique_ptr<SenderTransport> transport_;  // makes regions; destroyed after the slots
  std::map<std::uint64_t, Slot> slots_;         // by rank 0's number
  std::unique_ptr<RegionPacking> region_;       // destroyed before the tables it fills
  std::uint64_t call_ = 0;                      // the number of the last call
  std::uint64_t step_ = 0;
  bool pending_ = false;
  std::optional<RankMessage> report_;  // that came early
  std::atomic<Version> version_ = 0;   // any thread reads it
};

}  // namespace bascule::inline v0
