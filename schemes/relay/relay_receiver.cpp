#include <bascule/schemes/relay/relay_receiver.h>

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

using std::chrono::microseconds;

// Copies under way: enough to keep a copy engine busy, yet soon over if a source leaves.
constexpr std::uint64_t kPiecesAhead = 4;
// Pauses between two checks of a source, while bytes come and while none do.
constexpr microseconds kShortPause{20}, kLongPause{200};
// Messages seldom come before the receive() of their delivery, which follows soon, so there are always fewer.
constexpr std::size_t kMostEarly = 64;
// A copy that has begun ends within this time, unless the device hangs.
constexpr absl::Duration kUnderWay = absl::Seconds(10);

absl::StatusOr<ProcessFd> duplicate(int descriptor) {
  ProcessFd made = ProcessFd::make([&] { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); });
  if (!made) return errno_status(errno, "copy a descriptor of this worker's memory");
  return made;
}

}  // namespace

// The right to use the queue, for one thread at a time.
class RelayReceiver::Turn {
 public:
  explicit Turn(RelayReceiver& receiver, Deadline deadline) : receiver_(receiver) {
    std::unique_lock lock(receiver_.mutex_);
    is_mine_ = receiver_.changed_.wait_until(lock, deadline.at(), [this] { return !receiver_.copying_; });
    if (is_mine_) receiver_.copying_ = true;
  }
  ~Turn() {
    if (!is_mine_) return;
    const std::lock_guard lock(receiver_.mutex_);
    receiver_.copying_ = false;
    receiver_.changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return is_mine_; }

 private:
  RelayReceiver& receiver_;
  bool is_mine_ = false;
};

absl::StatusOr<std::unique_ptr<RelayReceiver>> RelayReceiver::make(RelayMemory memory, std::uint64_t bytes,
                                                                   std::size_t kept, bool digests) {
  std::unique_ptr<RelayReceiver> made(new RelayReceiver(std::move(memory), digests));
  BASCULE_ASSIGN(made->queue_, made->memory_.open_queue());
  BASCULE_ASSIGN(made->progress_, ProgressPage::make());
  const std::size_t shown = std::min(kept, kMostBuffers);
  const auto allocate = [&receiver = *made, shown](
                            std::uint64_t wanted, std::string_view what) -> absl::StatusOr<std::shared_ptr<std::byte>> {
    absl::StatusOr<ShownMemory> buffer = receiver.memory_.make_buffer(wanted);
    if (!buffer.ok()) return annotate(buffer.status(), cat("memory for ", what));
    receiver.allocated_ = buffer->allocated;
    if (receiver.shown_.size() < shown) receiver.shown_.push_back(std::move(buffer->descriptor));
    return std::move(buffer->memory);
  };
  BASCULE_TRY(made->buffers_.open(allocate, made->memory_.device, bytes, shown));
  made->mapper_.emplace();
  made->mapper_->submit(own_thread_of_devices);
  return made;
}

// ---- calls from the receiver ----

absl::StatusOr<SlotView> RelayReceiver::prepare(const Publication& publication, Deadline deadline) {
  std::unique_lock lock(mutex_);
  ReceiveBuffers::Buffer* buffer = nullptr;
  const auto came = [&] { return (buffer = buffers_.whole(publication.version)) != nullptr || !incoming_; };
  if (!changed_.wait_until(lock, deadline.at(), came) || buffer == nullptr)
    return failed_precondition("version ", publication.version, " did not come");
  return buffers_.take(*buffer, publication.slot.epoch);
}

void RelayReceiver::end_read(SlotId slot) {
  const std::lock_guard lock(mutex_);
  buffers_.end_read(slot.index);
}

absl::StatusOr<Digest> RelayReceiver::read_again(const Publication& publication, SlotId view,
                                                 std::span<const ByteRange> ranges, Deadline deadline) {
  const Turn turn(*this, deadline);
  if (!turn) return deadline_exceeded("another version is being received");
  std::unique_lock lock(mutex_);
  ReceiveBuffers::Buffer* const buffer = buffers_.read(view.index);
  if (buffer == nullptr) return failed_precondition("version ", publication.version, " is not being read");
  const std::shared_ptr<std::byte> memory = buffer->memory;
  lock.unlock();
  absl::StatusOr<Digest> digest = mend(publication, {memory.get(), publication.bytes}, ranges, deadline);
  const absl::Status settled = digest.ok() ? absl::OkStatus() : queue_->settle(Deadline(kUnderWay));
  lock.lock();
  if (digest.ok()) buffer->digest = *digest;
  if (!is_over(settled)) {
    if (const auto place = buffers_.place_of(*buffer)) progress_->clear(*place);
    written_.push_back(memory);
    buffers_.give_up(*buffer, /*still_written=*/true);
  }
  return digest;
}

absl::StatusOr<Digest> RelayReceiver::mend(const Publication& publication, std::span<std::byte> bytes,
                                           std::span<const ByteRange> ranges, Deadline deadline) {
  BASCULE_ASSIGN(const std::optional<std::uint64_t> there, trainer_->available(publication));
  if (there != publication.bytes) return unavailable("the trainer's slot no longer has version ", publication.version);
  for (const ByteRange& range : ranges)
    BASCULE_TRY(trainer_->read(publication, range, {.memory = bytes, .queue = *queue_, .digesting = false}));
  BASCULE_TRY(queue_->digest(bytes, true, std::nullopt));
  BASCULE_ASSIGN(const std::optional<Digest> digest, queue_->finish(deadline));
  return *digest;
}

// ---- messages ----

void RelayReceiver::say(const RelayMessage& message) {
  if (line_) line_->say(to_bytes(message));
}

void RelayReceiver::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  line_ = std::move(line);
  ++connections_;
  std::vector<ProcessFd> descriptors;
  const auto add = [&](int descriptor) {
    absl::StatusOr<ProcessFd> copy = duplicate(descriptor);
    if (copy.ok()) descriptors.push_back(*std::move(copy));
  };
  add(progress_->descriptor());
  for (const ProcessFd& buffer : shown_) add(buffer.get());
  // Without descriptors the sender gives this worker up and says why; the worker then reconnects and tries again.
  line_->say(to_bytes({.kind = RelayMessage::Kind::kBuffers, .place = memory_.place, .allocated = allocated_}),
             std::move(descriptors));
}

void RelayReceiver::heard(std::string bytes, std::vector<UniqueFd> descriptors) {
  absl::StatusOr<RelayMessage> message = parse_message(bytes);
  if (!message.ok()) return;  // no sender of this version sends it
  const std::lock_guard lock(mutex_);
  switch (message->kind) {
    case RelayMessage::Kind::kEngine: return meet(*std::move(message), std::move(descriptors));
    case RelayMessage::Kind::kForget:
      if (auto gone = engines_.extract(message->source)) let_go(std::move(gone.mapped()));
      return;
    case RelayMessage::Kind::kFrom:
    case RelayMessage::Kind::kOver: return hear_of(message->number, *message);
    default: return;  // only workers send these
  }
}

void RelayReceiver::meet(RelayMessage message, std::vector<UniqueFd> descriptors) {
  struct Shown {
    RelayMessage message;
    std::vector<UniqueFd> descriptors;
  };
  engines_[message.source] = nullptr;
  auto shown = std::make_shared<Shown>(Shown{std::move(message), std::move(descriptors)});
  mapper_->submit([this, shown, connection = connections_] {
    std::shared_ptr<EngineBuffers> made = EngineBuffers::make(memory_, shown->message, std::move(shown->descriptors));
    const std::lock_guard lock(mutex_);
    const auto engine = engines_.find(shown->message.source);
    if (engine == engines_.end() || connection != connections_) return;  // left meanwhile
    engine->second = std::move(made);
    changed_.notify_all();
  });
}

// On the mapper's thread: unmapping waits until the device has finished its reads.
void RelayReceiver::let_go(std::shared_ptr<EngineBuffers> engine) {
  mapper_->submit([engine = std::move(engine)] {});
}

void RelayReceiver::hear_of(std::uint64_t number, const RelayMessage& message) {
  if (!incoming_ || incoming_->number != number) {
    if (message.kind == RelayMessage::Kind::kOver) say({.kind = RelayMessage::Kind::kLeft, .number = number});
    early_.insert_or_assign(number, message);
    if (early_.size() > kMostEarly) early_.erase(early_.begin());
    return;
  }
  if (message.kind == RelayMessage::Kind::kOver) {
    incoming_->over = true;
  } else {
    incoming_->source = message.source;
    incoming_->whole = message.whole;
    incoming_->stuck = false;
  }
  changed_.notify_all();
}

void RelayReceiver::close() {
  const std::lock_guard lock(mutex_);
  line_ = nullptr;
  ++connections_;
  for (auto& [id, engine] : std::exchange(engines_, {})) let_go(std::move(engine));
  early_.clear();
  changed_.notify_all();
}

// ---- a version ----

absl::Status RelayReceiver::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  BASCULE_ASSIGN(const RelayMessage take, parse_message(bytes));
  if (take.kind != RelayMessage::Kind::kTake) return invalid_argument("a relay's delivery begins with another message");
  ReceiveBuffers::Buffer* buffer = nullptr;
  {
    const std::lock_guard lock(mutex_);
    absl::StatusOr<ReceiveBuffers::Buffer*> begun =
        publication.bytes == buffers_.bytes()
            ? buffers_.begin(publication.version, take.spared)
            : invalid_argument("expected a version of ", buffers_.bytes(), " bytes, found ", publication.bytes);
    if (!begun.ok()) {
      say({.kind = RelayMessage::Kind::kLeft, .number = take.number});
      return begun.status();
    }
    buffer = *begun;
    begin(take);
    incoming_->place = buffers_.place_of(*buffer);
    if (incoming_->place) {
      progress_->begin(*incoming_->place, publication.version);
    } else {
      say({.kind = RelayMessage::Kind::kAlone, .number = take.number});
    }
  }
  const Turn turn(*this, deadline);  // if another version is still read again, the deadline has passed
  absl::Status received =
      turn ? bring(publication, *buffer, deadline) : deadline_exceeded("the version did not come in time");
  // Until it is settled, the device may still write the buffer and read the source.
  const absl::Status settled = received.ok() ? received : queue_->settle(Deadline(kUnderWay));
  {
    const std::lock_guard lock(mutex_);
    say({.kind = received.ok() ? RelayMessage::Kind::kGot : RelayMessage::Kind::kLeft, .number = take.number});
  }
  std::optional<Digest> digest;
  const bool got = received.ok();
  if (got) {
    absl::StatusOr<std::optional<Digest>> made = queue_->finish(deadline);
    received = made.status();
    if (made.ok()) digest = *made;
  }
  const std::lock_guard lock(mutex_);
  if (received.ok()) {
    buffers_.came(*buffer, digest);
  } else {
    if (incoming_->place) progress_->clear(*incoming_->place);
    // Others may copy from here, and would wait for a version that is no longer shown.
    if (got) say({.kind = RelayMessage::Kind::kLeft, .number = take.number});
    if (!is_over(settled)) written_.push_back(buffer->memory);
    buffers_.give_up(*buffer, /*still_written=*/!is_over(settled));
  }
  incoming_.reset();
  early_.erase(early_.begin(), early_.upper_bound(take.number));
  changed_.notify_all();
  return received;
}

void RelayReceiver::begin(const RelayMessage& take) {
  incoming_ = Incoming{.number = take.number, .connection = connections_, .source = take.source, .whole = take.whole};
  if (const auto early = early_.extract(take.number)) hear_of(take.number, early.mapped());
}

absl::Status RelayReceiver::may_go_on(Deadline deadline) const {
  if (!line_ || incoming_->connection != connections_) return unavailable("the connection to the sender is lost");
  if (incoming_->over) return absl::CancelledError("the sender gave the version up");
  if (deadline.passed()) return deadline_exceeded("the version did not come in time");
  return absl::OkStatus();
}

// Finds how much of the version its source has. If an engine cannot give it, asks for another source.
absl::StatusOr<std::optional<RelayReceiver::Found>> RelayReceiver::look(const Publication& publication) {
  if (incoming_->stuck) return std::nullopt;
  std::shared_ptr<Source> source = trainer_;
  if (incoming_->source != kTrainer) {
    const auto engine = engines_.find(incoming_->source);
    if (engine != engines_.end() && !engine->second) return std::nullopt;  // being mapped
    source = engine != engines_.end() ? engine->second : nullptr;
  }
  const absl::StatusOr<std::optional<std::uint64_t>> found =
      source ? source->available(publication) : absl::NotFoundError("it was not introduced");
  if (found.ok() && *found) return Found{.source = std::move(source), .bytes = **found};
  if (found.ok() && !incoming_->whole) return std::nullopt;
  if (incoming_->source == kTrainer) return found.status();
  incoming_->stuck = true;
  say({.kind = RelayMessage::Kind::kCannot,
       .number = incoming_->number,
       .source = incoming_->source,
       .why = found.ok() ? "it no longer has that version" : std::string(message_of(found.status()))});
  return std::nullopt;
}

absl::Status RelayReceiver::bring(const Publication& publication, ReceiveBuffers::Buffer& buffer, Deadline deadline) {
  const std::span<std::byte> to(buffer.memory.get(), publication.bytes);
  const std::uint64_t piece = memory_.piece_bytes;
  std::uint64_t asked = 0, arrived = 0;
  microseconds pause = kShortPause;
  while (true) {
    BASCULE_ASSIGN(const std::uint64_t here, queue_->arrived());
    if (asked > 0 && here > arrived) {
      arrived = here;
      if (incoming_->place) progress_->advance(*incoming_->place, arrived);
      pause = kShortPause;
    }
    if (asked == publication.bytes && arrived == asked) return absl::OkStatus();
    std::optional<Found> found;
    {
      std::unique_lock lock(mutex_);
      BASCULE_TRY(may_go_on(deadline));
      if (asked < publication.bytes && asked - arrived < kPiecesAhead * piece) {
        BASCULE_ASSIGN(found, look(publication));
      }
      if (!found || std::min(asked + piece, publication.bytes) > found->bytes) {
        changed_.wait_for(lock, pause);
        pause = std::min(2 * pause, arrived < asked ? kShortPause : kLongPause);
        continue;
      }
    }
    const std::uint64_t end = std::min(asked + piece, publication.bytes);
    BASCULE_TRY(
        found->source->read(publication, {asked, end}, {.memory = to, .queue = *queue_, .digesting = digests_}));
    asked = end;
    pause = kShortPause;
  }
}

}  // namespace bascule::inline v0::relay
