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
// The leases on an aborted version end when its readers learn of the next one.
constexpr absl::Duration kLeaseEnds = absl::Milliseconds(20);
// How long an engine takes at most to mend its copy, and how often those that share it look again.
constexpr absl::Duration kMending = absl::Seconds(2);
constexpr std::chrono::milliseconds kMendingPause{5};

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
  std::unique_ptr<RelayReceiver> made(new RelayReceiver(std::move(memory), std::min(kept, kMostBuffers), digests));
  BASCULE_ASSIGN(made->queue_, made->memory_.open_queue());
  BASCULE_ASSIGN(made->progress_, ProgressPage::make());
  const auto allocate = [&here = made->memory_](std::uint64_t wanted, std::string_view what) {
    absl::StatusOr<ShownMemory> buffer = here.make_buffer(wanted);
    return buffer.ok() ? absl::StatusOr<std::shared_ptr<std::byte>>(std::move(buffer->memory))
                       : annotate(buffer.status(), cat("memory for ", what));
  };
  BASCULE_TRY(made->buffers_.open(allocate, made->memory_.device, bytes, 0));
  return made;
}

RelayReceiver::RelayReceiver(RelayMemory memory, std::size_t kept, bool digests)
    : memory_(std::move(memory)), kept_(kept), digests_(digests), engines_(memory_, [this] {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

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
  const bool shared = buffer->lease != nullptr;
  lock.unlock();
  const std::span<std::byte> bytes(memory.get(), publication.bytes);
  absl::StatusOr<Digest> digest =
      shared ? await_mending(publication, bytes, deadline) : mend(publication, bytes, ranges, deadline);
  const absl::Status settled = digest.ok() ? absl::OkStatus() : queue_->settle(Deadline(kUnderWay));
  lock.lock();
  if (digest.ok()) buffer->digest = *digest;
  if (!is_over(settled)) {
    if (buffer->place) progress_->clear(*buffer->place);
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

// The engine that copied the version finds the same, and mends its copy.
absl::StatusOr<Digest> RelayReceiver::await_mending(const Publication& publication, std::span<const std::byte> bytes,
                                                    Deadline deadline) {
  const Deadline mended(std::min(deadline.at(), Deadline(kMending).at()));
  while (true) {
    BASCULE_TRY(queue_->digest(bytes, true, std::nullopt));
    BASCULE_ASSIGN(const std::optional<Digest> digest, queue_->finish(deadline));
    if (*digest == publication.digest || mended.passed()) return *digest;
    std::this_thread::sleep_for(kMendingPause);
  }
}

// ---- messages ----

void RelayReceiver::say(const RelayMessage& message) {
  if (line_) line_->say(to_bytes(message));
}

void RelayReceiver::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  line_ = std::move(line);
  ++connections_;
  told_to_show_ = false;
  if (shown_.empty()) return say({.kind = RelayMessage::Kind::kHere, .place = memory_.place});
  show_buffers();
}

void RelayReceiver::show_buffers() {
  if (!line_) return;
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

// On the thread that maps. Making a model's buffers may take long.
void RelayReceiver::make_shown() {
  std::vector<ShownMemory> made;
  absl::Status status;
  while (status.ok() && made.size() < kept_) {
    absl::StatusOr<ShownMemory> buffer = memory_.make_buffer(buffers_.bytes());
    if (buffer.ok()) made.push_back(*std::move(buffer));
    status = buffer.status();
  }
  const std::lock_guard lock(mutex_);
  making_ = false;
  if (!status.ok()) {
    say({.kind = RelayMessage::Kind::kBuffers, .place = memory_.place, .why = std::string(message_of(status))});
    return;
  }
  for (ShownMemory& buffer : made) {
    allocated_ = buffer.allocated;
    shown_.push_back(std::move(buffer.descriptor));
    buffers_.keep(std::move(buffer.memory));
  }
  if (told_to_show_) show_buffers();
}

void RelayReceiver::heard(std::string bytes, std::vector<UniqueFd> descriptors) {
  absl::StatusOr<RelayMessage> message = parse_message(bytes);
  if (!message.ok()) return;  // no sender of this version sends it
  const std::lock_guard lock(mutex_);
  switch (message->kind) {
    case RelayMessage::Kind::kEngine: return engines_.meet(*std::move(message), std::move(descriptors));
    case RelayMessage::Kind::kForget: engines_.forget(message->source); return changed_.notify_all();
    case RelayMessage::Kind::kShow:
      told_to_show_ = true;
      if (!shown_.empty()) return show_buffers();
      if (!std::exchange(making_, true)) engines_.run([this] { make_shown(); });
      return;
    case RelayMessage::Kind::kFrom:
    case RelayMessage::Kind::kOver: return hear_of(message->number, *message);
    default: return;  // only workers send these
  }
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
    incoming_->share = incoming_->stuck = false;
  }
  changed_.notify_all();
}

void RelayReceiver::close() {
  const std::lock_guard lock(mutex_);
  line_ = nullptr;
  ++connections_;
  engines_.forget_all();
  early_.clear();
  changed_.notify_all();
}

// ---- a version ----

absl::Status RelayReceiver::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  BASCULE_ASSIGN(const RelayMessage take, parse_message(bytes));
  if (take.kind != RelayMessage::Kind::kTake) return invalid_argument("a relay's delivery begins with another message");
  {
    const std::lock_guard lock(mutex_);
    buffers_.free_untaken();
    begin(take);
  }
  ReceiveBuffers::Buffer* buffer = nullptr;
  const Turn turn(*this, deadline);  // if another version is still read again, the deadline has passed
  absl::Status received =
      turn ? get(publication, take, buffer, deadline) : deadline_exceeded("the version did not come in time");
  // Until it is settled, the device may still write the buffer and read the source.
  const absl::Status settled = received.ok() || !turn ? received : queue_->settle(Deadline(kUnderWay));
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
    // Others may copy from here, and would wait for a version that is no longer shown.
    if (got) say({.kind = RelayMessage::Kind::kLeft, .number = take.number});
    if (buffer != nullptr) let_go(*buffer, /*still_written=*/!is_over(settled));
  }
  incoming_.reset();
  early_.erase(early_.begin(), early_.upper_bound(take.number));
  changed_.notify_all();
  return received;
}

// Of a buffer whose version does not come.
void RelayReceiver::let_go(ReceiveBuffers::Buffer& buffer, bool still_written) {
  if (buffer.place) progress_->clear(*buffer.place);
  if (still_written) written_.push_back(buffer.memory);
  buffers_.give_up(buffer, still_written);
}

absl::Status RelayReceiver::get(const Publication& publication, const RelayMessage& take,
                                ReceiveBuffers::Buffer*& buffer, Deadline deadline) {
  if (publication.bytes != buffers_.bytes())
    return invalid_argument("expected a version of ", buffers_.bytes(), " bytes, found ", publication.bytes);
  if (take.share) {
    BASCULE_ASSIGN(const bool shared, share(publication, buffer, deadline));
    if (shared) return absl::OkStatus();
    BASCULE_TRY(queue_->settle(Deadline(kUnderWay)));
    const std::lock_guard lock(mutex_);
    if (buffer != nullptr) let_go(*std::exchange(buffer, nullptr), /*still_written=*/false);
  }
  BASCULE_ASSIGN(buffer, begin_copy(publication, take));
  return copy(publication, *buffer, deadline);
}

// A buffer that others read is not written: the sender names the versions that are being copied, and engines that read
// one in place have leases.
absl::StatusOr<ReceiveBuffers::Buffer*> RelayReceiver::begin_copy(const Publication& publication,
                                                                  const RelayMessage& take) {
  bool leased = false;
  const auto usable = [&](const ReceiveBuffers::Buffer& buffer) {
    if (std::ranges::find(take.spared, buffer.version) != take.spared.end()) return false;
    if (!buffer.place) return true;
    progress_->clear(*buffer.place);
    const bool is_leased = progress_->is_leased(*buffer.place);
    leased |= is_leased;
    return !is_leased;
  };
  std::unique_lock lock(mutex_);
  buffers_.free_untaken();
  for (const Deadline soon(kLeaseEnds); buffers_.find_free(usable) == nullptr && leased && !soon.passed();)
    changed_.wait_for(lock, kShortPause);
  BASCULE_ASSIGN(ReceiveBuffers::Buffer* const buffer, buffers_.begin(publication.version, usable));
  incoming_->place = buffer->place;
  if (buffer->place) {
    progress_->begin(*buffer->place, publication.version);
  } else {
    say({.kind = RelayMessage::Kind::kAlone, .number = take.number});
  }
  return buffer;
}

void RelayReceiver::begin(const RelayMessage& take) {
  incoming_ = Incoming{.number = take.number,
                       .connection = connections_,
                       .source = take.source,
                       .whole = take.whole,
                       .share = take.share};
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
  Found found{.source = trainer_, .engine = nullptr};
  if (incoming_->source != kTrainer) {
    const auto engine = engines_.find(incoming_->source);
    if (engine && !*engine) return std::nullopt;  // being mapped
    found.source = found.engine = engine.value_or(nullptr);
  }
  const absl::StatusOr<std::optional<std::uint64_t>> bytes =
      found.source ? found.source->available(publication) : absl::NotFoundError("it was not introduced");
  if (bytes.ok() && *bytes) {
    found.bytes = **bytes;
    return found;
  }
  if (bytes.ok() && !incoming_->whole) return std::nullopt;
  if (incoming_->source == kTrainer) return bytes.status();
  ask_for_another(bytes.ok() ? absl::NotFoundError("it no longer has that version") : bytes.status());
  return std::nullopt;
}

void RelayReceiver::ask_for_another(const absl::Status& why) {
  incoming_->stuck = true;
  say({.kind = RelayMessage::Kind::kCannot,
       .number = incoming_->number,
       .source = incoming_->source,
       .why = std::string(message_of(why))});
}

// Returns false if the version must be copied after all.
absl::StatusOr<bool> RelayReceiver::share(const Publication& publication, ReceiveBuffers::Buffer*& buffer,
                                          Deadline deadline) {
  std::uint64_t here = 0;
  std::size_t shared = 0;
  microseconds pause = kShortPause;
  while (true) {
    std::uint64_t end = 0;
    {
      std::unique_lock lock(mutex_);
      BASCULE_TRY(may_go_on(deadline));
      if (!incoming_->share) return false;
      BASCULE_ASSIGN(const std::optional<Found> found, look(publication));
      if (found && buffer == nullptr) {
        absl::StatusOr<std::optional<EngineBuffers::Shared>> lent = found->engine->share(publication);
        if (lent.ok() && *lent) {
          buffer = buffers_.borrow(publication.version, std::move((*lent)->memory),
                                   std::make_shared<const ProcessFd>(std::move((*lent)->lease)));
          shared = (*lent)->buffer;
        } else {
          ask_for_another(lent.ok() ? absl::NotFoundError("it no longer has that version") : lent.status());
        }
      } else if (found && found->engine->found() != shared) {
        ask_for_another(absl::NotFoundError("it receives that version into another buffer"));
      } else if (found) {
        end = found->bytes;
      }
      if (end <= here) {
        changed_.wait_for(lock, pause);
        pause = std::min(2 * pause, kLongPause);
        continue;
      }
    }
    if (digests_) BASCULE_TRY(queue_->digest_behind(nullptr, {buffer->memory.get(), publication.bytes}, here, end));
    here = end;
    if (here == publication.bytes) return true;
    pause = kShortPause;
  }
}

absl::Status RelayReceiver::copy(const Publication& publication, ReceiveBuffers::Buffer& buffer, Deadline deadline) {
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
