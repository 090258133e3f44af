// Crew: rank 0's end of a sharded trainer. The other ranks join it; together they fill each slot, each rank its own
// boxes. Rank 0 alone owns the rest of a version, as an unsharded sender does: slots, leases, workers and the decision.
//
//   another rank                        rank 0
//   hello on the control socket ──────▶ admit(): one end of a socket           once
//   shards ───────────────────────────▶ meet(): proof that all boxes fit       once
//   ◀──────────────────────────── plan
//   ready, with call and step ────────▶ gather()                               each send
//   ◀──────────── slot, if it is new ── show()
//   ◀─────────────────────────── write   write()
//   written ──────────────────────────▶ finish(): then the shared tiles
//   ◀────────────────────────── report   report()
//
// A slot of several regions is not shared: each rank makes and writes its own region, and answers with what a worker
// needs to reach it, and with its part of the digest.
//
// A rank that is lost cannot come back: it may still write into a slot, and the others may be at another step. So every
// later send fails with the reason, until all ranks are started again.
//
// Threads: admit(), status() and look_at_lines() on the I/O thread, everything else on the public thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/options.h>
#include <bascule/sender/ranks/messages.h>
#include <bascule/sender/ranks/rank_line.h>
#include <bascule/sender/ranks/region_packing.h>
#include <bascule/sender/ranks/shard_packing.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/sender_status.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

struct Endpoint;

// Whether this rank can be one of so many, over that scheme at that endpoint. INVALID_ARGUMENT, UNIMPLEMENTED.
absl::Status check_ranks(const SenderOptions& options, const Scheme& scheme, const Endpoint& endpoint);
absl::Status check_takes_ranks(const Scheme& scheme, const Endpoint& endpoint);

class Crew {
 public:
  // `scheme` must outlive this object. `interrupted` and `trace` may be empty; see SenderOptions.
  Crew(std::uint32_t ranks, const Scheme& scheme, absl::Duration timeout, std::function<bool()> interrupted = {},
       std::function<void(std::string_view)> trace = {})
      : timeout_(timeout),
        scheme_(scheme),
        interrupted_(std::move(interrupted)),
        trace_(std::move(trace)),
        members_(ranks) {}

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(members_.size()); }

  // Returns the other rank's end of a new socket. FAILED_PRECONDITION says why this rank cannot join, now or ever.
  absl::StatusOr<ProcessFd> admit(const RankHello& hello);

  // For bascule-status. Any thread.
  std::vector<RankStatus> status();
  // Notes which ranks have hung up, so that status() can say since when. Any thread.
  void look_at_lines();

  // Waits until all ranks have stated their shards, and proves that they fit together. Then calls `use`, which takes
  // held() and division(). INVALID_ARGUMENT names the tensor and the ranks; all ranks get the same text, even if it is
  // `use` that failed.
  absl::Status meet(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                    const std::function<absl::Status()>& use);
  const HeldShards& held() const { return *held_; }
  // How slots are divided among the ranks; nullopt if all write the same memory.
  const std::optional<Division>& division() const { return division_; }

  // Waits until all ranks have begun the same call with the same step.
  absl::Status gather(const std::string& call, std::uint64_t step);
  // Gives all ranks a new slot, which can still be mapped writable, and waits until they have mapped it. With a
  // division, waits until they have made their regions, which are then in `memory`.
  absl::Status show(const Layout& layout, SlotMemory& memory);
  void forget(const SlotMemory& memory);
  // Lets all ranks write their boxes, and writes rank 0's.
  absl::Status write(const Layout& layout, SlotMemory& memory, bool digest, kernels::ThreadPool& pool);
  // Waits until all have written, and digests what several of them write. Copies the ranks' table to `table`, unless
  // that is empty, and returns its total; nothing without `digest`. UNAVAILABLE names a rank that is gone.
  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline, kernels::ThreadPool& pool,
                                               std::span<kernels::TileTotal> table);
  // Ends the call that gather() began.
  void report(const absl::StatusOr<SendReport>& report);

 private:
  struct Member {
    std::optional<RankLine> line;  // of another rank that has joined
    std::int64_t pid = 0;
    std::optional<Clock::time_point> gone{};  // since when its end of the line is seen to be closed
    std::uint64_t bytes = 0;                  // that it sends
    std::optional<RankMessage> came;          // the message that is awaited
    std::vector<UniqueFd> descriptors;        // that came with it
    std::uint64_t call = 0;                   // the number of its call that waits for a report; 0: none
    std::vector<std::uint64_t> missed;        // the steps to which it did not come in time; it may still begin them
  };
  struct Shown {
    std::uint64_t number = 0;
    std::optional<SharedTable> table{};
    std::unique_ptr<DeviceTable> on_device{};  // rank 0's part of the table, if its device writes that
  };

  std::string name_of_rank(std::size_t rank) const;
  absl::Status say(std::size_t rank, std::string_view name, std::string_view bytes,
                   std::span<const int> descriptors = {});
  absl::Status say_to_all(const RankMessage& message, std::span<const int> descriptors = {});
  // Waits until each other rank has sent a message of this kind, which is then in `came`. With kLost, a rank that has
  // not done so in time is lost: it may still write into a slot that is given to another version.
  enum class Late { kLost, kReported };
  absl::Status hear_all(RankMessage::Kind kind, Deadline deadline, std::string_view what, Late late);
  // Whether a rank that has said `ready` begins a call whose report it has got already, because it is late.
  static bool has_missed(Member& member, std::uint64_t step);
  absl::Status lose(std::size_t rank, const absl::Status& why);
  absl::Status end(absl::Status why);  // tells all ranks, now or when they come, why nothing can be sent
  void note_gone();                    // under mutex_
  absl::Status wait_joined(Deadline deadline);
  absl::Status all_fit(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                       const std::function<absl::Status()>& use);
  absl::Status plan_packing(const Layout& layout);
  absl::Status show(const Layout& layout, SlotMemory& memory, Shown& shown);
  absl::Status show_to_write(const Layout& layout, SlotMemory& memory, Shown& shown);
  absl::Status take_regions(SlotMemory& memory);
  absl::Status digest_shared_tiles(Deadline deadline, kernels::ThreadPool& pool);
  Shown* find(const SlotMemory& memory);

  const absl::Duration timeout_;
  const Scheme& scheme_;
  const std::function<bool()> interrupted_;
  const std::function<void(std::string_view)> trace_;
  std::mutex mutex_;             // guards joins, and what status() reads
  std::vector<Member> members_;  // by rank; the first is this rank, without a line
  absl::Status lost_;            // why no version can be sent any more
  bool meeting_ = false;         // this rank has called register_shards
  bool met_ = false;

  std::optional<HeldShards> held_;
  std::vector<std::uint32_t> owned_;     // by rank 0
  std::optional<Layout> layout_;         // of the slots, once one is shown
  std::optional<ShardPacking> packing_;  // rank 0's boxes, in memory that all ranks write
  std::optional<Division> division_;
  std::map<const std::byte*, Shown> shown_;  // by the slot's address
  std::unique_ptr<RegionPacking> region_;    // rank 0's boxes, with a division; destroyed before the tables it fills
  std::uint64_t next_slot_ = 1;
  std::uint64_t step_ = 0;
  Shown* writing_ = nullptr;
  SlotMemory* slot_ = nullptr;
  bool digest_ = false;
};

}  // namespace bascule::inline v0
