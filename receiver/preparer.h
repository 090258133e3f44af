// Preparer: the prepare thread. It maps, verifies, copies and unmaps, one job at a time in the order in which it is
// asked, so that neither the I/O thread nor the engine's own touches weights for the transport's sake.
//
//   job           does                                              answers
//   reach         has a sender's slots mapped                       what hears the sender's end, or what went wrong
//   copy_behind   copies what the writer has done, in turns
//                 with other jobs
//   prepare       reaches a version, verifies it, copies it ahead   how it went
//   give_back     waits for a device, in turns with other jobs;     its number
//                 gives memory back, and unmaps what nothing holds
//   look          looks for a version without a sender; is cut      what it found
//                 short by a sender that welcomes, and by stop()
//
// Calls and answers: the I/O thread's, but where said. Nothing is answered after stop().
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
#include <bascule/receiver/lease_tracker.h>
#include <bascule/receiver/prepare_context.h>
#include <bascule/transport/task_thread.h>

namespace bascule::inline v0 {

class Preparer {
 public:
  // As PrepareContext. `poison` is called from the prepare thread.
  Preparer(boost::asio::io_context& io, const ReceiverOptions& options, const Endpoint& endpoint, const Scheme& scheme,
           std::function<void(const absl::Status&)> poison);

  void copy_by(Copier* copier);  // before start()
  void start();
  void stop();  // any thread: ends the job under way, or waits for it, and drops the rest
  // After stop(): blocks until no device works for it any more. DEADLINE_EXCEEDED: one does.
  absl::Status settle(Deadline deadline) { return context_.settle(deadline); }
  absl::StatusOr<ReadPlan> take(const Layout& layout) const { return context_.take(layout); }

  // ---- a sender's memory ----

  struct Reached {
    std::shared_ptr<Reception> reception;  // null: the scheme's ends say nothing to each other
    std::string path;                      // ReceiverTransport::path()
  };
  void reach(Welcome welcome, std::vector<UniqueFd> descriptors, ReadPlan read_plan, std::shared_ptr<Attachment> known,
             std::function<void(absl::StatusOr<Reached>)> done);
  void accept(ReceivedOffer offer, std::function<void()> done);
  void keep_only(std::set<SlotId> slots);
  // Slots were reached, and lie elsewhere than where they are read.
  bool copies_behind() const { return reach_ == Reach::kCopied; }

  // ---- versions ----

  void copy_behind(Publication publication, std::shared_ptr<Preparation> preparation);
  void prepare(Publication publication, BackSet set, std::shared_ptr<Preparation> preparation,
               std::function<void(const absl::Status&)> done);
  // Waits until the device has passed what may read memory, under a deadline; null: nothing does.
  using Passed = std::function<absl::Status(Deadline)>;
  // `preparation`: of an incoming version. Where the device cannot be asked any more, `done` is not called.
  void give_back(LeaseTracker::Departing departing, std::shared_ptr<Preparation> preparation, Passed passed,
                 std::function<void(std::uint64_t number)> done);
  void let_go(std::shared_ptr<Attachment> attachment);
  void wait_for(std::shared_ptr<DeviceMark> mark, std::function<void()> done);  // any thread; done where it has passed

  // ---- without a sender ----

  using Found = absl::StatusOr<std::optional<LocalVersion>>;
  // While one is under way, does nothing. `cut`: a sender came meanwhile, and brings its own.
  void look(Version newer_than, std::vector<std::shared_ptr<Attachment>> known, BackSet set,
            std::function<void(Found, bool cut)> done);
  void cut_look() { look_.request_stop(); }

 private:
  bool only_looks_up() const;
  void give_back_behind(LeaseTracker::Departing departing, Passed passed, std::function<void(std::uint64_t)> done);
  // Where nothing else is to be done and the job only looks something up: at once, on this thread.
  void submit(std::function<void()> job, bool only_looks_up);
  void answer(std::function<void()> done);

  enum class Reach { kUnknown, kInPlace, kReceived, kCopied };

  boost::asio::io_context& io_;
  const bool may_only_look_up_;  // by the options
  const std::function<void(const absl::Status&)> poison_;
  DigestMode sender_digest_ = DigestMode::kOn;
  bool copies_ = false;
  std::atomic<Reach> reach_{Reach::kUnknown};  // by the prepare thread, once it knows
  bool looking_ = false;
  std::stop_source look_;
  PrepareContext context_;
  TaskThread thread_;  // last: what it runs uses the rest
};

}  // namespace bascule::inline v0
