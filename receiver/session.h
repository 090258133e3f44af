// Session: a receiver's protocol. Its I/O thread greets and answers, and never touches weights.
//
//   the connection         SenderConnection  searching, greeting, attached, ended
//   what is held           LeaseTracker      which leases end when
//   bytes                  Preparer          the prepare thread
//   the scheme's messages  SchemeChannel     gets the sender's messages, and receives versions on a separate thread
//   the engine             FlipGate          decided and offered versions wait there
//
//   state        on                         does                                          to
//   searching    connected                  hello                                         greeting
//                no sender, a version found leaves it at the gate                         searching
//   greeting     no welcome, nothing served, a version found
//                                           leaves it at the gate                         greeting
//                welcome                    has the slots mapped (prepare thread)         attached
//   attached     prepare(v)                 ready(v), once its back set is free           attached, v incoming
//                deliver(v)                 has the scheme receive v
//                sealed(v), verified and,   prepared(v) | failed(v)
//                in the background, copied
//                decided(v)                 leaves v at the gate
//                abort(v)                   released(v)
//   any          hang-up, silence, refused  drops versions that were not decided          searching, after a pause
//   any          its device is lost         poisoned for good                             ended
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bascule/receiver/copier.h>
#include <bascule/receiver/flip_gate.h>
#include <bascule/receiver/handler_scope.h>
#include <bascule/receiver/io_thread.h>
#include <bascule/receiver/lease_tracker.h>
#include <bascule/receiver/options.h>
#include <bascule/receiver/preparer.h>
#include <bascule/receiver/receiver_status.h>
#include <bascule/receiver/scheme_channel.h>
#include <bascule/receiver/sender_connection.h>
#include <bascule/receiver/status_board.h>
#include <bascule/receiver/stream_marks.h>
#include <bascule/transport/device.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/log_limit.h>
#include <bascule/transport/post_surely.h>
#include <bascule/transport/stay_awake.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

// When a flip is acknowledged: at once, or when the engine has loaded the version.
enum class AckWhen { kFlipped, kLoaded };

class Session {
 public:
  // `token` is given only over TCP.
  Session(ReceiverOptions options, Endpoint endpoint, std::optional<Token> token, const Scheme& scheme, FlipGate& gate);
  ~Session();  // stop(), and ends the leases

  // Says goodbye, ends what its threads do for it, and waits, for at most flip_timeout, until no device reads what it
  // holds. Returns false if a device may still read; then the session must keep its mappings and leases until the
  // process ends. Call once, on the engine's thread.
  bool stop();
  // Whether the calling thread is one of those for which stop() waits.
  [[nodiscard]] bool is_on_own_thread() const { return io_thread_->is_this() || preparer_->is_this_thread(); }

  void copy_by(std::unique_ptr<Copier> copier);  // call it before start(); without it, the engine reads in place
  void start();                                  // call once; begins to greet
  Copier* copier() const { return copier_.get(); }

  // Engine's thread, before it flips from `before` (if any) to `next`. If the work queued so far may read memory that
  // is written next, returns the point that the engine's stream has reached, otherwise null. After an error the engine
  // must not flip.
  absl::StatusOr<std::shared_ptr<DeviceMark>> leave(const std::optional<LocalVersion>& before,
                                                    const LocalVersion& next);
  void not_flipped(LocalVersion next, const absl::Status& why);  // the engine keeps serving its version
  // The engine now serves `now`, and no longer `before` (if any), once `mark` is passed.
  void flipped(const LocalVersion& now, std::optional<LocalVersion> before, std::shared_ptr<DeviceMark> mark,
               double stall_seconds, AckWhen ack);
  // After a flip with AckWhen::kLoaded: the engine has loaded the version, or its weights now belong to no version.
  void loaded();
  void not_loaded(const LocalVersion& local, const absl::Status& why);

  // Engine's thread of a follower: versions that rank 0 passed over.
  void passed_over(std::vector<LocalVersion> versions);
  // Engine's thread: its copy of `local` failed, or is late and still under way; its tensors hold no version.
  void torn(LocalVersion local, const absl::Status& why);
  // Engine's thread: commit() has waited for `waited` while the sender may have written the single copy.
  void give_up_writer(absl::Duration waited);
  // Any thread: the served version must not be used until the next flip or, if the error lost the device, ever again.
  void poison(std::string why);
  void poison(const absl::Status& why);

  absl::Status wait_ready(Version least, Deadline deadline) {
    return board_.wait_ready(least, deadline, options_.worker, endpoint_.place());
  }
  ReceiverStatus status() const { return board_.status(); }

 private:
  // ---- the connection: session.cpp ----
  SenderConnection::Handlers handlers();
  void greet();
  void on_message(Message message, std::vector<UniqueFd> descriptors);
  void on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors);
  void detach();  // drops versions that are not decided, keeps the others; retry() follows with the reason
  void retry(const absl::Status& why, bool final_refusal = false) noexcept;
  void fail(const absl::Status& why) noexcept;  // ends the connection; another attempt follows
  void refuse_sender(const absl::Status& why, bool final_refusal = false);  // sends the reason; another sender may come
  absl::Status check_newer(Epoch epoch, std::optional<Version> version) const;
  void on_endpoint_gone(const absl::Status& why);
  void on_endpoint_back();
  void look_for_versions();
  void on_found(Preparer::Found found, bool cut);

  // ---- versions: session_versions.cpp ----
  void on_prepare(Prepare prepare, std::vector<UniqueFd> descriptors);
  void ask_to_yield();
  void say_ready();
  void on_deliver(Deliver deliver);
  void on_received(Version version, const absl::Status& status);
  void prepare_incoming();
  void on_sealed(const Sealed& sealed);
  void on_prepared(const absl::Status& status);
  void on_decided(Version version);
  void broke_protocol(std::string_view how);  // the sender "decided version 4, which is not prepared"
  void on_abort(const Abort& abort);
  void offer(LocalVersion local);
  void decide(LocalVersion local);
  BackSet back_set() const;

  // ---- leases: session_versions.cpp ----
  void drop_incoming();
  void release_engine(bool written, std::string why);
  void doubt(std::optional<LocalVersion> spoiled);
  void withdraw(Version version);
  void give_back(std::optional<LeaseTracker::Departing> departing, std::shared_ptr<Preparation> preparation = nullptr,
                 Preparer::Passed passed = nullptr);
  void on_given_back(std::uint64_t number);

  // ---- the engine: session_engine.cpp ----
  void lose(const absl::Status& why);               // any thread: the device is lost
  absl::Status wait_until_left(Deadline deadline);  // for stop()

  // Any thread: does `work` on the I/O thread, unless the session has ended by then.
  template <typename Work>
  void post(Work work) noexcept {
    post_surely(io_, scope_(std::move(work)));
  }
  bool is_follower() const { return options_.rank > 0; }
  bool copies_ahead() const { return copier_ && copier_->apply() == Apply::kBackground; }
  void update(const std::function<void(ReceiverStatus&)>& change);
  void can_serve(Version version);  // posts on the board that the version can be served
  void acknowledge();
  void wake_engine() const;  // commit() has work
  // Engine's thread: nothing is served any longer. The memory that `drop` returns is given back after `passed`.
  template <typename Drop>  // std::optional<LeaseTracker::Departing>(bool late)
  void unserve(Version version, const absl::Status& why, Preparer::Passed passed, Drop drop);
  // A sender can cause any of these lines again and again.
  void log(std::string_view line) noexcept { log_to(options_.log, line); }
  void warn(std::string_view line) noexcept { log_to(options_.warn ? options_.warn : options_.log, line); }
  void log_to(const std::function<void(std::string_view)>& sink, std::string_view line) noexcept;

  const ReceiverOptions options_;
  Endpoint endpoint_;  // final after start()
  const Scheme& scheme_;
  FlipGate& gate_;
  const std::uint64_t instance_;
  std::unique_ptr<Copier> copier_;  // null if the engine reads in place
  EncodedTensors expected_;         // for every hello; null if any tensors will do. Does not change after start()
  StatusBoard board_;
  StreamMarks marks_;  // engine's thread

  // I/O thread.
  const std::shared_ptr<IoThread> io_thread_;
  boost::asio::io_context& io_;
  HandlerScope scope_;
  StayAwake awake_;
  SenderConnection connection_;
  SchemeChannel scheme_channel_;
  UniqueFd lease_;  // our end of the lease pipe; closing it ends our leases; empty over TCP
  LeaseTracker leases_;
  std::shared_ptr<Preparation> preparation_;  // of the incoming version
  std::shared_ptr<DeviceMark> left_;          // once passed, the engine no longer reads the set that the last flip left
  int failures_ = 0;                          // versions in a row that could not be prepared
  LogLimit log_limit_;
  absl::Status alone_;          // why a version found without a sender cannot be served
  absl::Status endpoint_gone_;  // an error if attached while the endpoint was removed
  std::optional<Ack> due_ack_;  // for the version being loaded
  Clock::time_point decided_at_;

  bool stopped_ = false;  // engine's thread
  std::unique_ptr<Preparer> preparer_;
};

}  // namespace bascule::inline v0
