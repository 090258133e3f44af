// Coordinator: the sender's I/O thread. It owns the socket, the members, the slot ring and the rounds; the
// public thread asks it for a slot, tells it that the slot is sealed, and waits for the report.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
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
#include "sender/delivery.h"
#include "sender/endpoint_lock.h"
#include "sender/lease_pipes.h"
#include "sender/member.h"
#include "sender/report.h"
#include "sender/round.h"
#include "transport/endpoint.h"
#include "transport/slot_ring.h"

namespace bascule {

class Coordinator {
 public:
  using Log = std::function<void(std::string_view)>;

  // Binds the control socket of `endpoint`, whose folder is locked by `lock`, and starts the thread.
  static absl::StatusOr<std::unique_ptr<Coordinator>> start(const Endpoint& endpoint, const Scheme& scheme,
                                                            EndpointLock lock, Log log);
  ~Coordinator();  // gives up what is pending, says goodbye, joins

  // All of these: public thread.
  void register_layout(Layout layout);  // greetings are compared with it from now on
  void open_slots(std::vector<OfferedSlot> slots,
                  int control_page);  // once; workers are welcomed from now on
  absl::StatusOr<std::vector<std::string>> wait_for_workers(int count, Deadline deadline);

  // Takes a slot and a version number for it and tells the workers; blocks for a slot.
  absl::StatusOr<Publication> begin(Deadline deadline);
  // The slot is written: deliver, prepare, decide, commit. `deadline` is the decision's.
  void seal(Version version, std::optional<Digest> digest, Deadline deadline);
  void abandon(Version version, absl::Status why);  // instead of seal()
  // The report of the version that was sealed last; none where it has not settled by then: it stays pending.
  std::optional<absl::StatusOr<SendReport>> wait_settled(Deadline deadline);

  Epoch epoch() const { return epoch_; }
  Version version() const { return published_version_.load(std::memory_order_relaxed); }

 private:
  Coordinator(const Endpoint& endpoint, const Scheme& scheme, EndpointLock lock, Log log);
  absl::Status bind();

  // Membership (coordinator_membership.cpp)
  void accept_next();
  void greet(WorkerId id, Hello hello);
  void consider(Member& member);  // refuse, admit or leave parked
  void welcome(Member& member);
  void refuse(WorkerId id, const absl::Status& why);
  void evict(WorkerId id, absl::Status why);
  void forget(WorkerId id, const absl::Status& why);
  void on_message(WorkerId id, Message message);
  void while_it_waits(Member& member, const Message& message);
  void on_reader_gone(Holder holder);
  void on_heartbeat_timer();
  Member* find(WorkerId id);
  std::string names_of(const std::vector<Holder>& holders) const;

  // Versions (coordinator_rounds.cpp)
  void try_begin();
  void advance(Round& round, Member* catching_up);
  void deliver(Round& round, Member* catching_up);
  void decide(Round& round, Member* catching_up);
  void settle(Round& round, Member* catching_up);
  void start_catch_up(Member& member);
  void catch_up_all();
  void arm_round_timer(Clock::time_point at);
  void on_round_timer();
  void finish_abort();
  void tell(const Round& round, const Message& message);

  void share();  // brings what the public thread waits for up to date
  void log(std::string_view line) const;
  template <typename Work>
  void post(Work work);

  const Endpoint endpoint_;
  const Scheme& scheme_;
  const Log log_;
  EndpointLock lock_;
  const Epoch epoch_;
  std::atomic<Version> published_version_;

  boost::asio::io_context io_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer heartbeat_timer_;
  boost::asio::steady_timer round_timer_;
  LeasePipes pipes_;
  std::unique_ptr<SenderTransport> transport_;

  // I/O thread only.
  std::vector<std::unique_ptr<Member>> members_;  // in the order they came
  std::map<Holder, std::string> holder_names_;    // also of those who are gone
  WorkerId next_worker_ = 1;
  Version last_version_ = 0;  // the highest number known to be used
  std::optional<Layout> layout_;
  std::vector<OfferedSlot> slots_;
  int control_page_ = -1;
  std::optional<SlotRing> ring_;
  std::map<std::uint32_t, std::optional<Digest>> slot_digests_;  // of published slots, by index
  std::unique_ptr<Round> round_;                                 // the public thread's
  Clock::time_point round_until_;                                // deadline of its present half
  bool writer_busy_ = false;                                     // the public thread has the slot
  bool delivery_busy_ = false;                                   // the delivery thread has it
  std::string last_refusal_;

  // Shared with the public thread.
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Shared {
    std::vector<std::string> addressable;
    std::string refusal;  // the last one, for error texts
    std::string holders;  // who stands in the way of a slot
    bool begin_wanted = false;
    std::optional<absl::StatusOr<Publication>> begun;
    std::optional<absl::StatusOr<SendReport>> settled;
  } shared_;

  std::unique_ptr<Delivery> delivery_;
  std::thread thread_;
};

}  // namespace bascule
