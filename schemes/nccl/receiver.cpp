#include <bascule/schemes/nccl/receiver.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <bascule/schemes/nccl/arrivals.h>
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/offer.h>
#include <bascule/schemes/nccl/options.h>
#include <bascule/schemes/nccl/ranks.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

// The line to the sender, and the mutex and threads for the arrivals and the ranks in groups.
class Receiver::Shared : public std::enable_shared_from_this<Shared> {
 public:
  Shared(Dependencies dependencies, const Endpoint& endpoint)
      : dependencies_(std::move(dependencies)),
        device_(endpoint.device),
        kept_(endpoint.versions_kept),
        ctas_(kCtas.in(endpoint).value_or(0)) {}

  absl::Status accept(const ReceivedOffer& offer);
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline);
  void end_read(std::uint32_t number);
  std::optional<SlotView> find(SlotId slot) const;
  void open(std::shared_ptr<SenderLine> line);
  void hear(std::string_view bytes);
  absl::Status receive(const Publication& publication, std::string_view bytes, Deadline deadline);
  void close();
  void wait_left(Deadline deadline);

 private:
  void say(const GroupMessage& message);  // this and the next two: under the mutex
  void answer(GroupMessage::Kind kind, CommGroupId group, const absl::Status& status);  // `kind`, or `failed`
  void refuse(CommGroupId group, std::uint64_t number, const absl::Status& why);
  void join(const GroupMessage& message);
  void ended(CommGroupId group);
  absl::Status go_on(Communicator& communicator, const GroupMessage& message);
  absl::Status wait_for(std::unique_lock<std::mutex>& lock, Deadline deadline);

  const Dependencies dependencies_;
  const int device_;
  const std::size_t kept_;
  const int ctas_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<SenderLine> line_;  // null: no connection
  Arrivals arrivals_;
  Ranks ranks_;
  bool accepted_ = false;  // an offer: the two members above are open
};

// ---- the sender's memory, which this end never maps ----

absl::Status Receiver::Shared::accept(const ReceivedOffer& offer) {
  if (accepted_) {
    const std::lock_guard lock(mutex_);
    if (ranks_.hangs())
      return unimplemented("nccl: an abort of a communicator of this process has not returned; restart this process");
    return absl::OkStatus();
  }
  BASCULE_ASSIGN(const NcclOffer theirs, parse_offer(offer.bytes));
  BASCULE_ASSIGN(const Library* const library, dependencies_.library());
  BASCULE_ASSIGN(const Environment ours, read_environment(*library));
  BASCULE_TRY(check_same(ours, theirs.environment, "this worker", "the sender"));
  BASCULE_ASSIGN(const std::shared_ptr<Place> place, dependencies_.place(device_));
  const std::lock_guard lock(mutex_);
  BASCULE_TRY(ranks_.open(*library, place, ctas_));
  BASCULE_TRY(arrivals_.open(place, offer.slot_bytes, kept_, theirs.piece_bytes));
  accepted_ = true;
  return absl::OkStatus();
}

absl::StatusOr<SlotView> Receiver::Shared::prepare(const Publication& publication, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const Version version = publication.version;
  const auto came = [&] { return arrivals_.has(version) || !arrivals_.any(); };
  if (!changed_.wait_until(lock, deadline.at(), came) || !arrivals_.has(version))
    return failed_precondition("nccl: version ", version, " did not come");
  return arrivals_.take(version, publication.slot.epoch);
}

void Receiver::Shared::end_read(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  arrivals_.end_read(number);
}

std::optional<SlotView> Receiver::Shared::find(SlotId slot) const {
  const std::lock_guard lock(mutex_);
  return arrivals_.find(slot);
}

// ---- messages ----

void Receiver::Shared::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  line_ = std::move(line);
}

void Receiver::Shared::say(const GroupMessage& message) {
  if (line_) line_->say(to_bytes(message));
}

void Receiver::Shared::answer(GroupMessage::Kind kind, CommGroupId group, const absl::Status& status) {
  if (status.ok()) return say({.kind = kind, .group = group});
  say({.kind = GroupMessage::Kind::kFailed, .group = group, .why = std::string(message_of(status))});
}

void Receiver::Shared::hear(std::string_view bytes) {
  const absl::StatusOr<GroupMessage> heard = parse_message(bytes);
  if (!heard.ok()) return;  // no sender of this version sends it
  const GroupMessage& message = *heard;
  if (message.kind == GroupMessage::Kind::kMake) return join(message);
  const std::lock_guard lock(mutex_);
  switch (message.kind) {
    case GroupMessage::Kind::kAsk:
      return answer(GroupMessage::Kind::kReady, message.group,
                    ranks_.hangs() ? absl::UnavailableError("an abort hangs") : absl::OkStatus());
    case GroupMessage::Kind::kWarm:
      return ranks_.warm(message.group, [self = shared_from_this(), group = message.group](const absl::Status& status) {
        const std::lock_guard guard(self->mutex_);
        self->answer(GroupMessage::Kind::kWarmed, group, status);
      });
    case GroupMessage::Kind::kDrop:
      if (!ranks_.leave(message.group)) say({.kind = GroupMessage::Kind::kDropped, .group = message.group});
      return;
    case GroupMessage::Kind::kAgain:
    case GroupMessage::Kind::kOver: arrivals_.hear(message); return changed_.notify_all();
    default: return;  // only workers send these
  }
}

// Not under the mutex, since communicators may call back from within make().
void Receiver::Shared::join(const GroupMessage& message) {
  const CommGroupId group = message.group;
  const auto self = shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    ranks_.expect(group);
  }
  const auto made = [self, group](const absl::Status& status) {
    const std::lock_guard lock(self->mutex_);
    self->answer(GroupMessage::Kind::kMade, group, status);
  };
  auto communicator = ranks_.make(message, {.made = made, .ended = [self, group] { self->ended(group); }});
  const std::lock_guard lock(mutex_);
  ranks_.put(group, std::move(communicator));
}

// NCCL no longer writes its memory.
void Receiver::Shared::ended(CommGroupId group) {
  std::unique_ptr<Communicator> gone;  // destroyed after the unlock
  const std::lock_guard lock(mutex_);
  gone = ranks_.end(group);
  say({.kind = GroupMessage::Kind::kDropped, .group = group, .number = arrivals_.number(), .from = arrivals_.there()});
  changed_.notify_all();
}

// ---- a version ----

absl::Status Receiver::Shared::receive(const Publication& publication, std::string_view bytes, Deadline deadline) {
  BASCULE_ASSIGN(const GroupMessage first, parse_message(bytes));
  if (first.kind != GroupMessage::Kind::kDeliver)
    return invalid_argument("nccl: expected a delivery message, found another");
  std::unique_lock lock(mutex_);
  if (absl::Status begun = arrivals_.begin(publication, first); !begun.ok()) {
    refuse(first.group, first.number, begun);
    return begun;
  }
  absl::Status received = wait_for(lock, deadline);
  if (received.ok()) {
    lock.unlock();
    received = arrivals_.digest(deadline);
    lock.lock();
  } else if (!arrivals_.is_over()) {
    refuse(arrivals_.group(), first.number, received);
  }
  // A communicator that is leaving may still write until it has ended; it shares the memory.
  arrivals_.end(received.ok(), /*still_written=*/!ranks_.empty());
  changed_.notify_all();
  return received;
}

// This worker does not take the delivery, so it leaves the group: NCCL pairs broadcasts by their order, and would take
// the next one for this one.
void Receiver::Shared::refuse(CommGroupId group, std::uint64_t number, const absl::Status& why) {
  say({.kind = GroupMessage::Kind::kFailed, .group = group, .number = number, .why = std::string(message_of(why))});
  ranks_.leave(group);
}

absl::Status Receiver::Shared::wait_for(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  while (true) {
    if (!line_) return unavailable("nccl: the connection to the sender is lost");
    if (arrivals_.is_over()) return absl::CancelledError("nccl: the sender gave the version up");
    if (const std::optional<GroupMessage> message = arrivals_.next()) {
      if (Communicator* const communicator = ranks_.find(message->group)) BASCULE_TRY(go_on(*communicator, *message));
      continue;
    }
    if (arrivals_.is_all_there()) return absl::OkStatus();
    const bool woken = changed_.wait_until(lock, deadline.at(), [&] {
      return !line_ || arrivals_.is_over() || arrivals_.has_next() || arrivals_.is_all_there();
    });
    if (!woken)
      return deadline_exceeded("nccl: only ", arrivals_.there(), " of ", arrivals_.bytes(), " bytes came in time");
  }
}

// The rest of the version, in this group.
absl::Status Receiver::Shared::go_on(Communicator& communicator, const GroupMessage& message) {
  BASCULE_ASSIGN(Broadcast rest, arrivals_.go_on(message));
  rest.enqueued = [self = shared_from_this(), number = message.number](Stream stream, std::uint64_t begin,
                                                                       std::uint64_t end) {
    const std::lock_guard guard(self->mutex_);
    return self->arrivals_.piece(number, stream, begin, end);
  };
  rest.done = [self = shared_from_this(), group = message.group, number = message.number](absl::Status status,
                                                                                          std::uint64_t there) {
    const std::lock_guard guard(self->mutex_);
    if (!self->arrivals_.is_incoming(number)) return;
    // Sent before this group's `dropped`, so that the sender continues without this worker.
    if (status.ok()) self->say({.kind = GroupMessage::Kind::kGot, .number = number});
    if (!status.ok() && !absl::IsCancelled(status))
      self->say({.kind = GroupMessage::Kind::kFailed, .group = group, .why = std::string(message_of(status))});
    self->arrivals_.went(std::move(status), there);
    self->changed_.notify_all();
  };
  communicator.broadcast(std::move(rest));
  return absl::OkStatus();
}

// ---- the end ----

void Receiver::Shared::close() {
  const std::lock_guard lock(mutex_);
  line_.reset();
  ranks_.leave_all();
  arrivals_.forget_early();
  changed_.notify_all();
}

void Receiver::Shared::wait_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [this] { return ranks_.empty(); });
}

// ---- Receiver ----

Receiver::Receiver(Dependencies dependencies, const Endpoint& endpoint)
    : shared_(std::make_shared<Shared>(std::move(dependencies), endpoint)) {}

Receiver::~Receiver() {
  shared_->close();
  shared_->wait_left(Deadline(absl::Seconds(2)));
}

absl::Status Receiver::accept(ReceivedOffer offer) { return shared_->accept(offer); }
absl::StatusOr<SlotView> Receiver::prepare(const Publication& publication, Deadline deadline) {
  return shared_->prepare(publication, deadline);
}
void Receiver::end_read(SlotId slot) { shared_->end_read(slot.index); }
std::optional<SlotView> Receiver::find(SlotId slot) const { return shared_->find(slot); }
void Receiver::open(std::shared_ptr<SenderLine> line) { shared_->open(std::move(line)); }
void Receiver::heard(std::string bytes, std::vector<UniqueFd>) { shared_->hear(bytes); }
absl::Status Receiver::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  return shared_->receive(publication, bytes, deadline);
}
void Receiver::close() { shared_->close(); }

}  // namespace bascule::inline v0::nccl
