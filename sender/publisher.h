// Publisher: a sender's public thread. For each version it takes a slot, packs it, seals it, and waits for the workers'
// acks. Sender is its public face.
#pragma once

#include <condition_variable>
#include <deque>
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
#include <bascule/sender/coordinator.h>
#include <bascule/sender/options.h>
#include <bascule/sender/packer.h>
#include <bascule/sender/ranks/crew.h>
#include <bascule/sender/registration.h>
#include <bascule/sender/report.h>
#include <bascule/sender/slot_store.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/held_version.h>
#include <bascule/transport/own_threads.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/task_thread.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Publisher {
 public:
  ~Publisher();
  // Which call waits for the version that was sealed last.
  enum class Pending { kNothing, kSend, kUpdate };
  using WorkerNames = std::vector<std::string>;

  static absl::StatusOr<std::shared_ptr<Publisher>> open(SenderOptions options);

  absl::Status register_model(std::unique_ptr<TensorSource> source, std::string description);
  absl::Status register_model(std::vector<TensorSpec> specs, int device, std::string description);
  // Waits for the other ranks; see Sender::register_shards().
  absl::Status register_shards(std::unique_ptr<ShardSource> source, std::string description, absl::Duration timeout);
  // See Sender::adopt() and Sender::held().
  absl::StatusOr<SendReport> adopt(const HeldVersion& version);
  absl::StatusOr<HeldVersion> held() const;
  absl::Status expect(ExpectedWorkers workers);
  absl::StatusOr<WorkerNames> wait_for_workers(int count, absl::Duration timeout);

  // Packs `weights` (null: the registered ones) and seals them. `call` is the caller's name, for error texts. If a
  // device packs and the caller does not `wait` right away, a separate thread waits for the pack and seals.
  absl::Status stage(std::string_view call, TensorSource* weights, const WorkerNames& workers, Pending pending,
                     bool wait);
  // The same for the registered shards, once all ranks have made this call for this step.
  absl::Status stage_shards(std::string_view call, std::uint64_t step, const WorkerNames& workers);
  // Returns the pending send's report; DEADLINE_EXCEEDED leaves the send pending.
  absl::StatusOr<SendReport> settled(Deadline deadline);
  // Returns the report of a blocking call, which ends by its own deadlines. If they passed without a report (this
  // process stood still), the next call that needs a slot waits for it, as after update_weights().
  absl::StatusOr<SendReport> settled();
  Pending pending() const { return pending_; }

  // A slot on loan: lend() takes it; publish() or take_back() ends the loan.
  absl::StatusOr<Publication> lend(const WorkerNames& workers);
  absl::StatusOr<SendReport> publish(const Publication& publication);
  void take_back(const Publication& publication);

  const std::shared_ptr<SlotSet>& slots() const { return slots_->set(); }
  Version version() const { return coordinator_->version(); }

 private:
  static absl::StatusOr<std::shared_ptr<Publisher>> open_with_threads(SenderOptions options);
  struct End {
    void operator()(Publisher* publisher) const;
  };
  explicit Publisher(Endpoint endpoint, int threads) : endpoint_(std::move(endpoint)), pool_(threads) {}

  bool single_copy() const { return endpoint_.single_copy(); }
  // Leaves time for a decision after a late delivery and preparation, for the last ack, even from engines that load two
  // versions by themselves, or for the disk, and for threads to wake.
  Deadline settles_by() const {
    return Deadline(endpoint_.timeout + 3 * endpoint_.flip_timeout +
                    std::max(2 * endpoint_.load_timeout, endpoint_.timeout) + endpoint_.suspect_after);
  }

  absl::Status check_none_registered() const;
  absl::Status check_unsharded(std::string_view call) const;
  absl::Status use(Registration made);
  absl::Status use(Registration made, std::unique_ptr<Packer> packer);
  using MakePacking = std::function<absl::StatusOr<Packing>()>;  // called again once the layout is final
  absl::Status pack_and_seal(std::string_view call, const MakePacking& make_packing, const WorkerNames& workers,
                             Pending pending, bool wait);
  absl::Status check_free(std::string_view call);
  absl::Status settle_update();
  absl::Status encode_layout();
  absl::Status open_slots(const SlotHandle* adopted = nullptr);
  // `packed` means that the packer fills the slot, and reports its progress.
  absl::StatusOr<Publication> begin(const WorkerNames& workers, Clock::time_point called, const Limit& limit,
                                    bool packed);
  absl::Status begin_writing(Coordinator::Grant& grant, std::optional<OfferedSlot>& made, Deadline deadline);
  void seal(Publication publication, std::optional<Digest> digest, const Limit& limit) noexcept;
  // Ends a pack: seals the result, or aborts the version.
  void finish(const Publication& publication, Clock::time_point packing_since, const Limit& limit) noexcept;
  void look_for_infinities(const Publication& publication);
  void finish_behind(const Publication& publication, Clock::time_point packing_since, const Limit& limit);
  bool sealed_by(Deadline deadline);
  void leave_out(const UpdateReport& update);
  void add_updates(SendReport& report);
  void name_lost(SendReport& report);
  absl::StatusOr<SendReport> settled_here(Deadline deadline);
  absl::StatusOr<std::optional<Digest>> digest_of(SlotId slot, bool want_digest, Deadline deadline);

  const Endpoint endpoint_;
  const Scheme* scheme_ = nullptr;
  Coordinator::Sink warn_;  // may be empty
  Silence silence_ = std::make_shared<std::atomic<bool>>(false);
  kernels::ThreadPool pool_;
  std::unique_ptr<Crew> crew_;  // of a sharded sender
  std::optional<Registration> registration_;
  EncodedLayout encoded_layout_;      // the registration's
  std::unique_ptr<SlotStore> slots_;  // opened by the first publication
  std::unique_ptr<Packer> packer_;    // chosen by register_model(); waits for the device before slots are freed

  bool loaned_ = false;
  Pending pending_ = Pending::kNothing;
  // For the version in flight: written by the thread that seals it, then read by the public thread.
  StageSeconds measured_;   // the version's wait and pack
  bool in_pieces_ = false;  // the version's bytes leave while they are written
  Version sealed_version_ = 0;
  std::vector<std::string> warnings_;
  struct Published {
    Version version = 0;
    std::optional<Digest> digest;
  };
  Published published_;                       // the last published version
  absl::Status moved_;                        // with slots=1: whether the parameters lie in the slot
  std::deque<UpdateReport> updates_;          // settled, for the next report
  std::size_t left_out_ = 0;                  // older ones
  std::string left_out_error_;                // the last error among these
  std::map<std::string, WorkerReport> lost_;  // workers that these lost
  std::vector<Placement> may_overflow_;       // in the version that is packed, Registration::may_overflow()
  bool said_infinite_ = false;                // the log has it
  bool to_all_ = true;                        // the version in flight is for all workers

  std::unique_ptr<Coordinator> coordinator_;  // ends before the memory above, which was offered to its members

  std::mutex sealing_mutex_;
  std::condition_variable sealed_;
  bool sealing_ = false;              // the sealing thread has a version
  std::optional<TaskThread> sealer_;  // last: its tasks use the rest; empty if the host packs
};

}  // namespace bascule::inline v0
