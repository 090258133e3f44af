// Coordinator: the sender's I/O thread. It owns the socket, the members, the slot ring and the rounds; the
// public thread asks it for a slot, tells it that the slot is sealed, and waits for the report.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "sender/acceptor.h"
#include "sender/endpoint_lock.h"
#include "sender/lease_pipes.h"
#include "sender/member.h"
#include "sender/report.h"
#include "sender/round.h"
#include "transport/endpoint.h"
#include "transport/slot_ring.h"
#include "transport/stay_awake.h"
#include "transport/task_thread.h"

namespace bascule {

class Coordinator {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Listens at `endpoint`, whose folder is locked by `lock`, and starts the thread. `transport`
  // outlives it; `token` is for TCP.
  static absl::StatusOr<std::unique_ptr<Coordinator>> start(const Endpoint& endpoint, SenderTransport& transport,
                                                            EndpointLock lock, std::optional<Token> token, Sink log,
                                                            Sink trace);
  ~Coordinator();  // gives up what is pending, says goodbye, joins

  // All of these: public thread.
  void register_layout(Layout layout);                   // greetings are compared with it from now on
  std::vector<std::vector<std::string>> fused_wishes();  // of the workers who greeted so far, as they came
  // Once; workers are welcomed from now on. `layout` is the final one.
  void open_slots(std::vector<OfferedSlot> slots, Layout layout, int control_page);
  absl::StatusOr<std::vector<std::string>> wait_for_workers(int count, Deadline deadline);

  // A slot to write, and the number of the version that it will be.
  struct Grant {
    Version version = 0;
    SlotId slot;
    bool is_new = false;            // it has no memory yet
    bool followed = false;          // somebody copies behind the writer
    std::vector<SlotId> dropped{};  // left the ring since the last grant; nobody reads them
    std::vector<std::string> to{};  // the names that were asked for
  };
  // Takes a slot for a version to `workers` (names of workers and groups; empty: all); blocks for one.
  // NOT_FOUND names those who are unknown, and the known.
  absl::StatusOr<Grant> take(std::vector<std::string> workers, Deadline deadline);
  // The granted slot cannot be written after all: another one, new, in its place.
  Grant replace(const Grant& grant);
  void give_back(const Grant& grant);  // instead of announce()
  // Writing begins: tells the workers. `memory` is that of a new slot.
  void announce(const Grant& grant, std::optional<OfferedSlot> memory, Deadline deadline);
  // Single copy: until every reader has stepped aside. An error: nobody may write.
  absl::Status wait_yielded(Version version, Deadline deadline);
  // The slot is written: deliver, prepare, decide, commit. `deadline` is the decision's.
  void seal(Version version, std::optional<Digest> digest, Deadline deadline);
  // Instead of seal(). `torn`: of a single copy, which is half written.
  void abandon(Version version, absl::Status why, bool torn = false);
  // The report of a version that was announced; none where it has not settled by then: it stays pending. For the first
  // `awake` of that time the thread does not sleep.
  std::optional<absl::StatusOr<SendReport>> wait_settled(Version version, Deadline deadline, absl::Duration awake);

  Epoch epoch() const { return epoch_; }
  Version version() const { return published_version_.load(std::memory_order_relaxed); }

 private:
  Coordinator(const Endpoint& endpoint, SenderTransport& transport, EndpointLock lock, std::optional<Token> token,
              Sink log, Sink trace);

  // Membership (coordinator_membership.cpp)
  void arrive(const std::shared_ptr<Channel>& channel, Hello hello);
  void greet(WorkerId id, Hello hello);
  absl::Status check_name(const Hello& hello) const;
  void consider(Member& member);  // refuse, admit or leave parked
  std::vector<Member*> ranks_of(const Member& member);
  void welcome(Member& member);
  void refuse(WorkerId id, const absl::Status& why);
  void evict(WorkerId id, absl::Status why);
  void forget(WorkerId id, const absl::Status& why, bool final_refusal = false);
  void on_message(WorkerId id, Message message);
  void while_it_waits(Member& member, const Message& message);
  void on_reader_gone(Holder holder);
  void end_leases(Holder holder);
  void on_heartbeat_timer();
  void evict_poisoned(WorkerId id, std::string_view why);
  Member* find(WorkerId id);
  std::string names_of(const std::vector<Holder>& holders) const;

  // Slots for the public thread (coordinator_slots.cpp)
  void try_take();
  std::optional<SlotId> take_slot(bool& is_new);
  std::optional<SlotId> take_slot_ahead();
  absl::Status continue_above(Version version);
  void forget_slot(SlotId slot);
  bool will_not_let_go(Holder holder) const;
  absl::StatusOr<std::vector<WorkerId>> addressed(const std::vector<std::string>& names) const;
  std::vector<WorkerId> still_addressed(const std::vector<std::string>& names) const;
  void on_announce(const Grant& grant, std::optional<OfferedSlot> memory, Deadline deadline);
  bool tell_prepare(Member& member, const Publication& publication);
  std::vector<Holder> in_the_way();
  void let_write();

  // Versions (coordinator_rounds.cpp)
  void advance(Round& round, CatchUp* catch_up);
  void deliver(Round& round, CatchUp* catch_up);
  void decide(Round& round, CatchUp* catch_up);
  void persist(Round& round);
  void settle(Round& round, CatchUp* catch_up);
  void start_catch_up(Member& member);
  void end_catch_up(CatchUp& catch_up);
  void catch_up_all();
  void give_up_idle_catch_ups();
  void leave_time(CatchUp* catch_up);
  void arm_round_timer(Clock::time_point at);
  void on_round_timer();
  void finish_abort();
  void expect_release(const Round& round, const std::vector<WorkerId>& workers);
  void tell(const std::vector<WorkerId>& workers, const Message& message);
  void say(Member& member, const Message& message, const std::vector<int>& descriptors = {});

  // For whoever asks (coordinator_status.cpp)
  void describe(Channel& channel);
  WorkerStatus status_of(const Member& member) const;
  SlotStatus status_of(SlotId slot) const;
  std::vector<SlotId> all_slots() const;  // retired ones last
  std::vector<std::uint32_t> leases_of(Holder holder) const;

  void share_settled(Version version, absl::StatusOr<SendReport> settled);
  void share();  // brings what the public thread waits for up to date
  void log(std::string_view line) const;
  template <typename Work>
  void post(Work work);

  const Endpoint endpoint_;
  SenderTransport& transport_;
  const Sink log_, trace_;
  EndpointLock lock_;  // its record(): under mutex_
  const Epoch epoch_;
  std::atomic<Version> published_version_;
  std::atomic<Version> settled_version_ = 0;  // of shared_.settled; written under mutex_, read by who does not sleep

  boost::asio::io_context io_;
  StayAwake awake_;
  Acceptor acceptor_;
  boost::asio::steady_timer heartbeat_timer_;
  boost::asio::steady_timer round_timer_;
  LeasePipes pipes_;

  // I/O thread only.
  std::vector<std::unique_ptr<Member>> members_;  // in the order they came
  std::map<Holder, std::string> holder_names_;    // also of those who are gone
  std::map<std::string, std::string> poisoned_;   // workers evicted for failing, and why; until they serve again
  WorkerId next_worker_ = 1;
  std::optional<Layout> layout_;
  std::map<std::uint32_t, OfferedSlot> slots_;  // that have memory, by index
  int control_page_ = -1;
  std::optional<SlotRing> ring_;
  std::map<std::uint32_t, std::optional<Digest>> slot_digests_;  // of published slots, by index
  bool granted_ = false;                // a slot, ahead or to the public thread, and no version announced yet
  std::vector<std::string> round_for_;  // the names that were asked for
  std::unique_ptr<Round> round_;        // the public thread's
  std::vector<WorkerId> round_to_;      // whom it owes the version, in the round or not
  Clock::time_point round_until_;       // deadline of its present half
  bool writer_busy_ = false;            // the public thread has the slot
  bool delivery_busy_ = false;          // the delivery thread has it
  bool torn_ = false;                   // an abort leaves a single copy half written
  std::string last_refusal_;
  std::vector<std::string> warnings_;  // for the next report

  // Shared with the public thread.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  struct Shared {
    std::vector<std::string> addressable;
    std::vector<std::vector<std::string>> fused;
    bool followed = false;        // by some worker that copies behind the writer
    std::string refusal;          // the last one, for error texts
    std::string holders;          // who stands in the way of a slot
    Version last_version = 0;     // the highest number known to be used
    std::optional<SlotId> ahead;  // for the next version to all: its send need not ask, nor wake a thread first
    std::vector<SlotId> dropped;  // for the next grant
    bool take_wanted = false;
    std::vector<std::string> take_for;
    std::optional<absl::StatusOr<Grant>> granted;
    Version yielded = 0;                                // every reader has stepped aside for it
    std::optional<absl::StatusOr<SendReport>> settled;  // of settled_version_
  } shared_;

  std::optional<TaskThread> delivery_;  // runs what moves bytes
  std::thread thread_;
};

}  // namespace bascule
