// Session: the receiver's I/O thread. It keeps trying for a sender, greets, answers, and never touches
// weights.
//
//   state        on                         does                                 to
//   searching    connected                  hello                                greeting
//   greeting     welcome                    has it mapped (prepare thread)       attached
//   attached     prepare(v)                 ready(v)                             attached, v incoming
//                sealed(v), verified        prepared(v) | failed(v)
//                commit(v)                  leaves v at the gate
//                abort(v)                   released(v)
//   any          hang-up, silence, refused  drops what was not committed         searching, after a pause
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "receiver/attachment.h"
#include "receiver/flip_gate.h"
#include "receiver/preparer.h"
#include "receiver/receiver.h"
#include "transport/channel.h"
#include "transport/endpoint.h"
#include "transport/messages.h"

namespace bascule {

class Session {
 public:
  Session(ReceiverOptions options, Endpoint endpoint, const Scheme& scheme, FlipGate& gate);
  ~Session();  // says goodbye, ends the leases, joins

  void start();  // once: the greeting goes out from now on

  // Engine's thread: `now` is served from now on, `before` (if any) no more.
  void flipped(const Target& now, std::optional<Target> before, double stall_seconds);

  absl::Status wait_ready(Deadline deadline);
  ReceiverStatus status() const;

 private:
  struct Incoming {  // a version on its way to us
    Publication publication;
    std::shared_ptr<Attachment> attachment;
    const Weights* weights = nullptr;
    bool prepared = false;
  };

  void search();
  void retry(absl::Status why, bool final_refusal = false);
  void greet();
  void detach();
  void on_message(Message message, std::vector<UniqueFd> descriptors);
  void on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors);
  void on_prepare(const Prepare& prepare);
  void on_sealed(const Sealed& sealed);
  void on_verified(Version version, std::shared_ptr<Attachment> attachment, const Weights* weights,
                   const absl::Status& status);
  void on_commit(Version version);
  void on_abort(Version version);
  void on_heartbeat_timer();
  void release(std::shared_ptr<Attachment> attachment, SlotId slot, Version version);
  std::vector<HeldSlot> held() const;
  void send(const Message& message);
  void update(const std::function<void(ReceiverStatus&)>& change);
  void log(std::string_view line) const;

  const ReceiverOptions options_;
  const Endpoint endpoint_;
  const Scheme& scheme_;
  FlipGate& gate_;
  const std::uint64_t instance_;

  boost::asio::io_context io_;
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::steady_timer retry_timer_, heartbeat_timer_;
  std::shared_ptr<Channel> channel_;
  UniqueFd lease_;                // our end of the lease pipe; closing it ends our leases
  int tries_ = 0;                 // since the last commit: a worker that keeps failing pauses longer
  std::uint64_t connection_ = 0;  // counts connections: answers of the prepare thread to an old one are dropped
  std::optional<Incoming> incoming_;
  std::optional<Target> decided_, serving_;  // as the I/O thread knows them
  int failures_ = 0;                         // versions running that did not verify

  std::shared_ptr<Attachment> attachment_;  // prepare thread only: of the present connection

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReceiverStatus status_;
  bool ready_ = false;     // a version can be served
  bool hopeless_ = false;  // the last refusal will not change by itself

  std::thread thread_;
  std::unique_ptr<Preparer> preparer_;
};

}  // namespace bascule
