// Session: the receiver's I/O thread. It keeps trying for a sender, greets, answers, and never touches
// weights.
//
//   state        on                         does                                 to
//   searching    connected                  hello                                greeting
//                no sender, a version found leaves it at the gate                searching
//   greeting     welcome                    has it mapped (prepare thread)       attached
//   attached     prepare(v)                 ready(v), once its back set is free  attached, v incoming
//                sealed(v), verified and,   prepared(v) | failed(v)
//                in the background, copied
//                commit(v)                  leaves v at the gate
//                abort(v)                   released(v)
//   any          hang-up, silence, refused  drops what was not committed         searching, after a pause
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

#include "receiver/attachment.h"
#include "receiver/connector.h"
#include "receiver/copier.h"
#include "receiver/flip_gate.h"
#include "receiver/preparer.h"
#include "receiver/receiver.h"
#include "receiver/version_finder.h"
#include "transport/channel.h"
#include "transport/device.h"
#include "transport/endpoint.h"
#include "transport/messages.h"
#include "transport/stay_awake.h"

namespace bascule {

class Session {
 public:
  // `token`: for TCP.
  Session(ReceiverOptions options, Endpoint endpoint, std::optional<Token> token, const Scheme& scheme, FlipGate& gate);
  ~Session();  // says goodbye, ends the leases, joins

  void copy_by(std::unique_ptr<Copier> copier);  // before start(); else reads in place
  void start();                                  // once: the greeting goes out from now on
  Copier* copier() const { return copier_.get(); }

  // Engine's thread: `now` is served from now on, `before` (if any) no more.
  void flipped(const Target& now, std::optional<Target> before, double stall_seconds);

  // Engine's thread of a follower: versions that rank 0 passed over.
  void dropped(std::vector<Target> targets);
  // Engine's thread: its copy of `target` went wrong, and its tensors hold no version.
  void torn(Target target, const absl::Status& why);
  // Any thread: what is served must not be used, until a new version is.
  void poison(std::string why);

  absl::Status wait_ready(Deadline deadline);
  ReceiverStatus status() const;

 private:
  struct Preparation {                       // filled by the prepare thread
    std::atomic<bool> followed = false;      // to the end: sealed, or dropped
    std::shared_ptr<Attachment> attachment;  // none once all of it was copied
    Attachment::Ready ready;
    SlotId slot;  // that the engine will read
    std::optional<CopyAtFlip> copy;
    int device = kHost;  // on which it will
  };
  struct Incoming {  // a version on its way to us
    Publication publication;
    std::shared_ptr<Preparation> preparation;
    bool ready = false;  // said so
    bool prepared = false;
    bool in_place = false;  // a single copy: the engine steps aside for it
    bool aside = false;     // it has, and said so: the sender may write
  };

  void search();
  void look_for_versions();
  absl::StatusOr<std::optional<Incoming>> find_version(Version newer_than,
                                                       std::span<const std::shared_ptr<Attachment>> known, int set,
                                                       const std::shared_ptr<DeviceMark>& left);
  void on_found(absl::StatusOr<std::optional<Incoming>> found, std::uint64_t preparations);
  void retry(absl::Status why, bool final_refusal = false);
  void greet(std::shared_ptr<Channel> channel);
  void detach();
  void on_message(Message message, std::vector<UniqueFd> descriptors);
  void on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors);
  void on_prepare(Prepare prepare, std::vector<UniqueFd> descriptors);
  void accept_slot(Prepare& prepare, std::vector<UniqueFd> descriptors);
  void let_go_of_others(const std::vector<std::uint32_t>& slots);
  absl::StatusOr<Taking> take(const Layout& layout) const;
  // While the sender writes it, in turns with what else the prepare thread has to do.
  void follow(const Publication& publication, std::shared_ptr<Preparation> preparation);
  void say_ready();
  void on_sealed(const Sealed& sealed);
  // Prepare thread. take_in() is all but reaching the bytes; `verified`: they are known to be right.
  // `left`: the engine's stream has left the set that is copied to; none where there is no such stream.
  absl::Status prepare(const Publication& publication, int set, Preparation& preparation,
                       const std::shared_ptr<DeviceMark>& left);
  absl::Status take_in(const Publication& publication, int set, Preparation& preparation, bool verified);
  int back_set() const;
  void on_prepared(const absl::Status& status);
  void on_commit(Version version);
  void decide(Target target);
  void on_abort(const Abort& abort);
  bool follows() const { return options_.rank > 0; }
  // Whether preparing and releasing a version touches none of its bytes.
  bool only_looks_up() const;
  bool copies_ahead() const { return copier_ && copier_->apply() == Apply::kBackground; }
  void on_heartbeat_timer();
  static Target target_of(const Incoming& incoming);
  void drop_incoming(bool release_lease);
  std::optional<Target> reader_of(SlotId lease) const;
  void release(Target before, const std::optional<Target>& now, std::shared_ptr<DeviceMark> mark = nullptr);
  void drained(SlotId slot, Version version);
  void let_go(SlotId slot, Version version);
  // Engine's thread: the point that its stream on `device` has come to; none on the host.
  void lose_stream(const Target& now, std::optional<Target> before, const absl::Status& why);  // of flipped()
  void release_behind(Target before, std::shared_ptr<DeviceMark> mark, bool same_lease);
  absl::StatusOr<std::shared_ptr<DeviceMark>> mark_stream(int device);
  bool wait_for(const DeviceMark* mark);  // prepare thread; false: poisoned
  absl::Status wait_for_set(const std::shared_ptr<DeviceMark>& left);
  std::vector<SlotId> slots_in_use() const;
  std::vector<HeldSlot> held() const;
  void send(const Message& message);
  void update(const std::function<void(ReceiverStatus&)>& change);
  void log(std::string_view line) const;

  const ReceiverOptions options_;
  Endpoint endpoint_;  // as it is from start() on
  const Scheme& scheme_;
  FlipGate& gate_;
  const std::uint64_t instance_;
  std::unique_ptr<Copier> copier_;  // none: it reads in place

  boost::asio::io_context io_;
  StayAwake awake_;
  Connector connector_;
  boost::asio::steady_timer retry_timer_, heartbeat_timer_;
  std::shared_ptr<Channel> channel_;
  // Slots that the engine left, and that its stream may still read: held as those that are served.
  struct Draining {
    HeldSlot held;
    std::uint64_t connection = 0;  // over which the sender knows of it
  };
  std::vector<Draining> draining_;
  std::vector<Target> lost_;                        // of a stream that was lost: held for good
  std::shared_ptr<DeviceMark> left_;                // where the last flip left a set of the engine's own
  std::vector<std::shared_ptr<DeviceMark>> marks_;  // engine's thread: made once, used again
  UniqueFd lease_;                // our end of the lease pipe; closing it ends our leases; none over TCP
  int tries_ = 0;                 // since the last commit: a worker that keeps failing pauses longer
  std::uint64_t connection_ = 0;  // counts connections: answers of the prepare thread to an old one are dropped
  std::optional<Incoming> incoming_;
  // As the I/O thread knows them. Taken: by the engine, which has not flipped yet, when another was decided upon.
  std::optional<Target> decided_, taken_, serving_;
  std::map<Version, Target> offered_;  // of a follower: at the gate, for rank 0 to choose
  std::vector<std::uint32_t> slots_;   // that the sender has, as it last said
  std::map<SlotId, Version> told_;     // for which version it leased a slot last
  DigestMode sender_digest_ = DigestMode::kOn;
  // By the prepare thread, once it knows: whether slots lie where they are read.
  enum class Reach { kUnknown, kInPlace, kCopied };
  std::atomic<Reach> reach_{Reach::kUnknown};
  int failures_ = 0;                // versions running that did not verify
  std::uint64_t preparations_ = 0;  // begun, by a sender's word
  bool looking_ = false;            // the prepare thread looks for a version without a sender
  absl::Status alone_;              // why one that is there cannot be served

  std::shared_ptr<Attachment> attachment_;  // prepare thread only: of the present connection
  VersionFinder finder_;                    // likewise

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReceiverStatus status_;
  bool ready_ = false;     // a version can be served
  bool hopeless_ = false;  // the last refusal will not change by itself

  std::thread thread_;
  std::unique_ptr<Preparer> preparer_;
};

}  // namespace bascule
