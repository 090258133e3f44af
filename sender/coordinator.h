// Coordinator: the sender's I/O thread, around a Fleet. It owns what the fleet lacks: sockets, lease pipes, timers, the
// storage thread and the state shared with the public thread. It turns input from these into events for the fleet, and
// carries out the resulting actions in order.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/sender/acceptor.h>
#include <bascule/sender/endpoint_lock.h>
#include <bascule/sender/endpoint_watch.h>
#include <bascule/sender/fleet/fleet.h>
#include <bascule/sender/lease_pipes.h>
#include <bascule/sender/report.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/log_limit.h>
#include <bascule/transport/stay_awake.h>
#include <bascule/transport/task_thread.h>
#include <bascule/transport/wire/channel.h>

namespace bascule::inline v0 {

// The user's choices; see SenderOptions.
struct CoordinatorOptions {
  std::string compatibility_key{};
  ExpectedWorkers expect_workers{};
  std::function<void(std::string_view)> log{}, warn{}, trace{};
  std::function<bool()> interrupted{};
  // Of a sharded trainer, from the I/O thread; else empty.
  Acceptor::OnRank on_rank{};
  std::function<std::vector<RankStatus>()> ranks{};
  std::function<void()> watch_ranks{};  // once per heartbeat
};

class Coordinator : private WorkerLine {
 public:
  using Sink = std::function<void(std::string_view)>;
  using Interrupted = std::function<bool()>;  // SenderOptions::interrupted; may be empty
  using Grant = v0::Grant;

  // Listens at `endpoint`, whose folder is locked by `lock`, and at its listen=, and starts the thread. `transport`
  // must outlive the result; `token` is for TCP.
  static absl::StatusOr<std::unique_ptr<Coordinator>> start(const Endpoint& endpoint, SenderTransport& transport,
                                                            EndpointLock lock, std::optional<Token> token,
                                                            CoordinatorOptions options);
  [[nodiscard]] bool is_on_own_thread() const { return thread_.get_id() == std::this_thread::get_id(); }
  ~Coordinator() override;  // gives up pending versions, says goodbye, joins

  // ---- public thread (coordinator_calls.cpp); a wait returns CANCELLED once `interrupted` returns true ----

  void expect(ExpectedWorkers workers);
  void register_layout(SharedLayout layout, EncodedLayout encoded);  // after this, greetings are compared with it
  std::vector<std::vector<std::string>> fused_requests();  // the workers' requests, in the order in which they greeted
  // Call once; workers are welcomed after that. `layout` is the final one.
  void open_slots(std::vector<OfferedSlot> slots, SharedLayout layout, EncodedLayout encoded, int control_page);
  absl::StatusOr<std::vector<std::string>> wait_for_workers(int count, Deadline deadline);

  // Takes a slot for a version for `workers` (names of workers and groups; empty: all); blocks until a slot is free.
  // NOT_FOUND names the unknown workers and lists the known ones. The version's number is in sender.lock when take()
  // returns.
  absl::StatusOr<Grant> take(std::vector<std::string> workers, const Limit& limit);
  // Call it if the granted slot cannot be written after all. Returns a new one in its place.
  Grant replace(const Grant& grant);
  void give_back(const Grant& grant) noexcept;  // call it instead of announce()
  // Tells the workers that writing begins. `memory` is given if the slot is new.
  void announce(const Grant& grant, std::optional<OfferedSlot> memory, const Limit& limit) noexcept;
  // Single copy: blocks until every reader has yielded. After an error the trainer must not write.
  absl::Status wait_yielded(Version version, Deadline deadline);
  // Single copy: call it when the trainer gives the loan back, to be published or dropped. Returns DEADLINE_EXCEEDED if
  // its deadline had passed; the workers were then let go, and the version can only be abandoned.
  absl::Status end_loan(Version version);
  // Call it when the slot is written; delivery, preparation, the decision and commits follow. `limit` is for workers
  // that are not ready yet.
  void seal(Version version, std::optional<Digest> digest, const Limit& limit) noexcept;
  // Call it instead of seal(). `torn` means that a single copy is half written.
  void abandon(Version version, absl::Status why, bool torn = false) noexcept;
  // Returns the report of an announced version, or nullopt if it has not settled by the deadline or the wait was
  // interrupted; it then stays pending. For the first `awake` of the wait, the thread does not sleep.
  std::optional<absl::StatusOr<SendReport>> wait_settled(Version version, Deadline deadline, absl::Duration awake);

  Epoch epoch() const { return epoch_; }
  Version version() const { return published_version_.load(std::memory_order_relaxed); }

 private:
  struct Connection {
    std::shared_ptr<Channel> channel;
    std::string name;  // the worker's name
    ConnectionKind kind = ConnectionKind::kUnixSocket;
    bool admitted = false;  // the scheme has admitted it
  };

  Coordinator(const Endpoint& endpoint, SenderTransport& transport, EndpointLock lock, std::optional<Token> token,
              CoordinatorOptions options);
  FleetRules rules(std::string compatibility_key, ExpectedWorkers expected) const;

  // Public thread
  absl::Status number(Grant& grant);
  absl::StatusOr<Grant> wait_granted(const Limit& limit);
  enum class Waited { kUntilItWas, kUntilDeadline, kUntilInterrupted };
  template <typename Predicate>
  Waited wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Predicate is);
  void post_event(Event event) noexcept;
  template <typename Question>
  auto ask(Question question);  // asks the I/O thread, and waits for the answer; it may ask again if memory is short

  // The scheme, from any thread
  void deliver(WorkerId worker, Version version, std::string bytes) override;
  void say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors) override;
  void give_up(WorkerId worker, absl::Status why) override;
  void log(std::string line) override;
  void post(std::function<void()> work) override;

  // I/O thread: events (coordinator.cpp)
  std::unique_ptr<Acceptor> acceptor(const Endpoint& endpoint, std::optional<Token> token);
  void arrive(const std::shared_ptr<Channel>& channel, Hello hello, ConnectionKind kind);
  void hear(WorkerId id, Message message, std::vector<UniqueFd> descriptors);
  void describe(Channel& channel, ConnectionKind kind);
  void beat();
  void send_heartbeats();
  void watch_endpoint();
  void look_for_orphans();
  void handle(Event event) noexcept;
  void report(const absl::Status& why) noexcept;
  void show();  // copies changes of the fleet's state to shared_
  Connection* find(WorkerId id);

  // I/O thread: actions (coordinator_actions.cpp)
  void carry_out(action::Say& say);
  void carry_out(action::Admit& admit);
  void carry_out(action::Offer& offer);
  void carry_out(action::Close& close);
  void carry_out(action::CloseLeases& leases);
  void carry_out(action::ReadQueued& read);
  void carry_out(action::Deliver& deliver);
  void carry_out(action::StopDelivery& stopped);
  void carry_out(action::Publish& publish);
  void carry_out(action::Persist& persist);
  void carry_out(action::GrantSlot& granted);
  void carry_out(action::TakeAhead& taken);
  void carry_out(action::DropSlot& dropped);
  void carry_out(action::MayWrite& written);
  void carry_out(action::EndLoan& ended);
  void carry_out(action::Settle& settled);
  void carry_out(action::NumberAbove& number);
  void carry_out(action::WakeAt& wake);
  void carry_out(action::KeepAwake& keep);
  void carry_out(action::Log& log);
  absl::Status admit(action::Admit& admit);
  absl::StatusOr<Offer> offer_of(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots);
  absl::Status offer(action::Offer& offer);
  void trace_to(const Connection& connection, const Message& message) const noexcept;
  template <typename Work>
  void post_for(WorkerId worker, Work work);  // if `work` fails, the worker is given up

  const Endpoint endpoint_;
  const std::optional<Endpoint> beside_;  // listen=, if given
  SenderTransport& transport_;
  Delivery* const moves_;  // transport_.delivery(), or null
  const Sink log_, warn_, trace_;
  const Interrupted interrupted_;
  const Acceptor::OnRank on_rank_;
  const std::function<std::vector<RankStatus>()> ranks_;
  const std::function<void()> watch_ranks_;
  EndpointLock lock_;  // record() is called on the public thread
  const Epoch epoch_;
  std::atomic<Version> published_version_;
  std::atomic<Version> settled_version_ = 0;  // shared_.settled's; written under mutex_, read without it if awake

  boost::asio::io_context io_;
  StayAwake awake_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // one per place
  boost::asio::steady_timer heartbeat_timer_, deadline_timer_;
  LeasePipes pipes_;

  // I/O thread only.
  Fleet fleet_;
  std::deque<Action> actions_;       // to be carried out
  LogLimit log_limit_, warn_limit_;  // apart: refusals without end must not hide who joins
  bool carrying_out_ = false;
  std::map<WorkerId, Connection> connections_;
  WorkerId next_worker_ = 1;
  int control_page_ = -1;
  std::size_t shown_addressable_ = 0;  // what shared_ has
  bool shown_in_pieces_ = false;
  EndpointWatch watch_;                        // used on the storage thread, once that has started
  bool watching_ = false;                      // a look at the files is under way
  bool looking_ = false, look_again_ = false;  // a look for orphans is under way; another one was requested meanwhile

  // Shared with the public thread.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  struct Shared {
    std::size_t addressable = 0;  // how many workers can be sent the next version
    bool in_pieces = false;       // Fleet::writes_in_pieces()
    Version last_version = 0;     // the highest number known to be used
    std::optional<SlotId> ahead;  // taken for the next version to all, so that its send need not wake the I/O thread
    std::vector<SlotId> dropped;  // to be reported in the next grant
    std::optional<absl::StatusOr<Grant>> granted;
    Version loan_ended = 0;                             // the last version whose loan came back in time
    Version lapsed = 0;                                 // the last version whose loan did not
    Version yielded = 0;                                // the last version for which every reader has yielded
    std::optional<absl::StatusOr<SendReport>> settled;  // the report of settled_version_
  } shared_;

  std::optional<TaskThread> storage_;  // runs tasks that wait for storage
  std::thread thread_;
};

}  // namespace bascule::inline v0
