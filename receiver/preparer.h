// Preparer: the prepare thread. It maps, verifies, copies and unmaps, one job at a time in the order of the calls, so
// that neither the I/O thread nor the engine's own touches weights for the transport.
//
//   job           does                                              answers
//   reach         maps a sender's slots                             the scheme's Reception, or an error
//   copy_behind   copies what the writer has done, in turns
//                 with other jobs
//   prepare       reaches a version, verifies it, copies it ahead   the status
//   give_back     waits for a device, in turns with other jobs;     its number
//                 gives memory back, and unmaps what nothing holds
//   look          looks for a version without a sender; a welcome   what it found
//                 or stop() cuts it short
//
// Calls and answers belong to the I/O thread, unless stated otherwise. After stop() there are no answers.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/receiver/handler_scope.h>
#include <bascule/receiver/lease_tracker.h>
#include <bascule/receiver/prepare_context.h>
#include <bascule/receiver/prepare_pool.h>

namespace bascule::inline v0 {

class Preparer {
 public:
  // The arguments are the same as PrepareContext's. `poison` is called from the prepare thread.
  Preparer(boost::asio::io_context& io, HandlerScope scope, const ReceiverOptions& options, const Endpoint& endpoint,
           const Scheme& scheme, std::function<void(const absl::Status&)> poison);

  void copy_by(Copier* copier);  // call it before start()
  bool is_this_thread() const { return queue_.is_this_thread(); }
  void stop();  // any thread: ends the current job, or waits for it, and drops the rest
  // After stop(): blocks until no device still works for this object, or returns DEADLINE_EXCEEDED.
  absl::Status settle(Deadline deadline) { return context_.settle(deadline); }

  // ---- a sender's memory ----

  struct Reached {
    absl::Status fits;                     // an error if the engine's tensors cannot be made from the sender's
    std::shared_ptr<Reception> reception;  // null if the scheme's ends exchange no messages
    std::string path;                      // ReceiverTransport::path()
  };
  void reach(Welcome welcome, std::vector<UniqueFd> descriptors, std::shared_ptr<Attachment> known,
             std::function<void(absl::StatusOr<Reached>)> done);
  void accept(ReceivedOffer offer, std::function<void(const absl::Status&)> done);
  void keep_only(std::set<SlotId> slots);
  // Whether slots were reached that must be copied before the engine can read them.
  bool copies_behind() const { return reach_ == Reach::kCopied; }

  // ---- versions ----

  void copy_behind(Publication publication, std::shared_ptr<Preparation> preparation);
  void prepare(Publication publication, BackSet set, std::shared_ptr<Preparation> preparation,
               std::function<void(const absl::Status&)> done);
  // Waits, up to a deadline, until the device has done the work that may read the memory; null if there is none.
  using Passed = std::function<absl::Status(Deadline)>;
  // `preparation` is given for an incoming version. If the wait for the device fails, `done` is not called.
  void give_back(LeaseTracker::Departing departing, std::shared_ptr<Preparation> preparation, Passed passed,
                 std::function<void(std::uint64_t number)> done);
  void let_go(std::shared_ptr<Attachment> attachment);
  void wait_for(std::shared_ptr<DeviceMark> mark,
                std::function<void()> done);  // any thread; calls `done` once the mark is passed

  // ---- without a sender ----

  using Found = absl::StatusOr<std::optional<LocalVersion>>;
  // Does nothing while another look() is under way. `cut` means that the look was cut short, because a sender came with
  // its own versions.
  void look(Version newer_than, std::vector<std::shared_ptr<Attachment>> known, BackSet set,
            std::function<void(Found, bool cut)> done);
  void cut_look() { look_.request_stop(); }

 private:
  bool only_looks_up() const;
  void give_back_behind(LeaseTracker::Departing departing, Passed passed, std::function<void(std::uint64_t)> done);
  // Runs a short job that only looks something up at once, on this thread, if the prepare thread is idle. No job and no
  // answer is lost for lack of memory: a lease or the engine may wait for it.
  template <typename Job>
  void submit(Job job, bool only_looks_up = false) noexcept;
  template <typename Done>
  void answer(Done done) noexcept;

  enum class Reach { kUnknown, kInPlace, kReceived, kCopied };

  boost::asio::io_context& io_;
  const HandlerScope scope_;     // of the answers
  const bool may_only_look_up_;  // from the options
  const std::function<void(const absl::Status&)> poison_;
  DigestMode sender_digest_ = DigestMode::kOn;
  bool copies_ = false;
  bool many_tensors_ = false;                  // listing a slot's tensors takes long
  std::set<SlotId> listed_;                    // slots whose tensors were listed once
  std::atomic<Reach> reach_{Reach::kUnknown};  // set by the prepare thread
  bool looking_ = false;
  std::stop_source look_;
  PrepareContext context_;
  TaskQueue queue_;  // last: its tasks use the rest
};

}  // namespace bascule::inline v0
