// Publisher: what a sender's public thread does for one version: take a slot, pack it, seal it, and wait for the acks
// of the workers. Sender is its public face.
#pragma once

#include <condition_variable>
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
#include <bascule/sender/registration.h>
#include <bascule/sender/report.h>
#include <bascule/sender/slot_store.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/task_thread.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Publisher {
 public:
  ~Publisher();
  // What was sealed last, and which call waits for it.
  enum class Pending { kNothing, kSend, kUpdate };
  using WorkerNames = std::vector<std::string>;

  static absl::StatusOr<std::shared_ptr<Publisher>> open(SenderOptions options);

  absl::Status register_model(std::unique_ptr<TensorSource> source);
  absl::Status register_model(std::vector<TensorSpec> specs, int device);
  absl::StatusOr<WorkerNames> wait_for_workers(int count, absl::Duration timeout);

  // Packs `weights` (null: the registered ones) and seals them. `call` is the caller's name, for error texts. Where a
  // device packs and the caller will not `wait` right away, a thread of its own waits for the pack and seals.
  absl::Status stage(std::string_view call, TensorSource* weights, const WorkerNames& workers, Pending pending,
                     bool wait);
  // The pending send's report; DEADLINE_EXCEEDED leaves it pending.
  absl::StatusOr<SendReport> settled(Deadline deadline);
  // That of a blocking call, by its own deadlines. Where they passed without it (this process stood still), the next
  // call that needs a slot waits for it, as behind update_weights().
  absl::StatusOr<SendReport> settled();
  Pending pending() const { return pending_; }

  // A slot on loan, from taking it to one of the two ends.
  absl::StatusOr<Publication> lend(const WorkerNames& workers);
  absl::StatusOr<SendReport> publish(const Publication& publication);
  void take_back(const Publication& publication);

  const std::shared_ptr<SlotSet>& slots() const { return slots_->set(); }
  Version version() const { return coordinator_->version(); }

 private:
  static absl::StatusOr<std::shared_ptr<Publisher>> open_with_threads(SenderOptions options);
  explicit Publisher(Endpoint endpoint, int threads) : endpoint_(std::move(endpoint)), pool_(threads) {}

  bool single_copy() const { return endpoint_.slots == 1; }
  // Up to the decision, with time for what begins late: to deliver, to prepare; to the last ack, also of engines that
  // load by themselves; some for threads to wake.
  Deadline settles_by() const {
    return Deadline(endpoint_.timeout + 3 * endpoint_.flip_timeout + endpoint_.load_timeout + endpoint_.suspect_after);
  }

  absl::Status check_none_registered() const;
  absl::Status use(Registration made);
  absl::Status check_free(std::string_view call);
  absl::Status settle_update();
  absl::Status encode_layout();
  absl::Status open_slots();
  // `packed`: by the packer, which tells how far it is.
  absl::StatusOr<Publication> begin(const WorkerNames& workers, Clock::time_point called, Deadline deadline,
                                    bool packed);
  absl::Status begin_writing(Coordinator::Grant& grant, std::optional<OfferedSlot>& made, Deadline deadline);
  void seal(Publication publication, std::optional<Digest> digest, Deadline deadline);
  // The end of a pack: seals what it came to, or aborts the version.
  void finish(Publication publication, Clock::time_point packing_since, Deadline deadline);
  void finish_behind(const Publication& publication, Clock::time_point packing_since, Deadline deadline);
  bool sealed_by(Deadline deadline);
  absl::StatusOr<std::optional<Digest>> digest_of(SlotId slot, bool want_digest, Deadline deadline);

  const Endpoint endpoint_;
  const Scheme* scheme_ = nullptr;
  Coordinator::Sink log_;  // may be empty
  kernels::ThreadPool pool_;
  std::optional<Registration> registration_;
  EncodedLayout encoded_layout_;      // of the registration
  std::unique_ptr<SlotStore> slots_;  // open from the first publication on
  std::unique_ptr<Packer> packer_;    // chosen by register_model(); waits for the device before slots go

  bool loaned_ = false;
  Pending pending_ = Pending::kNothing;
  // Of the version under way: written by the thread that seals it, then read by the public thread.
  StageSeconds measured_;   // wait and pack of the version under way
  bool in_pieces_ = false;  // the version under way: bytes leave while it is written
  Version sealed_version_ = 0;
  std::vector<std::string> warnings_;
  struct Published {
    Version version = 0;
    std::optional<Digest> digest;
  };
  Published published_;                // the last one that was
  absl::Status moved_;                 // with slots=1: whether the parameters lie in the slot
  std::vector<UpdateReport> updates_;  // settled, for the next report

  std::unique_ptr<Coordinator> coordinator_;  // behind the memory, which its members were offered

  std::mutex sealing_mutex_;
  std::condition_variable sealed_;
  bool sealing_ = false;              // the sealing thread has a version
  std::optional<TaskThread> sealer_;  // last: what it runs uses the rest; none where the host packs
};

}  // namespace bascule::inline v0
