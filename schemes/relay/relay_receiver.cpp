#include <bascule/schemes/relay/relay_receiver.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <bascule/schemes/relay/copy_sizes.h>
#include <bascule/schemes/relay/mend.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

using std::chrono::microseconds;

// Pauses between two checks of a source, while bytes come and while none do.
constexpr microseconds kShortPause{20}, kLongPause{200};
constexpr char kGone[] = "it no longer has that version";
// A copy that has begun ends within this time, unless the device hangs.
constexpr absl::Duration kUnderWay = absl::Seconds(10);
// The leases on an aborted version end when its readers learn of the next one.
constexpr absl::Duration kLeaseEnds = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<RelayReceiver>> RelayReceiver::make(RelayMemory memory, std::uint64_t bytes,
                                                                   std::size_t kept, DigestMode digest) {
  std::unique_ptr<RelayReceiver> made(
      new RelayReceiver(std::move(memory), bytes, std::min(kept, kMostBuffers), digest));
  BASCULE_ASSIGN(made->queue_, made->memory_.open_queue());
  BASCULE_TRY(made->shown_.open(made->memory_, bytes));
  return made;
}

RelayReceiver::RelayReceiver(RelayMemory memory, std::uint64_t bytes, std::size_t kept, DigestMode digest)
    : memory_(std::move(memory)), bytes_(bytes), kept_(kept), digest_(digest), engines_(memory_, [this] {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

// ---- calls from the receiver ----

absl::StatusOr<SlotView> RelayReceiver::prepare(const Publication& publication, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Buffer* buffer = nullptr;
  const auto came = [&] {
    return (buffer = shown_.all().whole(publication.version)) != nullptr || !orders_.is_under_way();
  };
  if (!changed_.wait_until(lock, deadline.at(), came) || buffer == nullptr)
    return failed_precondition("version ", publication.version, " did not come");
  return shown_.all().take(*buffer, publication.slot.epoch);
}

void RelayReceiver::end_read(SlotId slot) {
  const std::lock_guard lock(mutex_);
  shown_.all().end_read(slot.index);
}

std::optional<SlotView> RelayReceiver::find(SlotId slot) const {
  const std::lock_guard lock(mutex_);
  return shown_.all().find(slot);
}

absl::StatusOr<Digest> RelayReceiver::read_again(const Publication& publication, SlotId view,
                                                 std::span<const ByteRange> ranges, Deadline deadline) {
  const QueueTurns::Turn turn(turns_, deadline);
  if (!turn) return deadline_exceeded("another version is being received");
  std::unique_lock lock(mutex_);
  Buffer* const buffer = shown_.all().read(view.index);
  if (buffer == nullptr) return failed_precondition("version ", publication.version, " is not being read");
  const std::shared_ptr<std::byte> memory = buffer->memory;
  const bool shared = buffer->lease != nullptr;
  lock.unlock();
  const std::span<std::byte> bytes(memory.get(), publication.bytes);
  absl::StatusOr<Digest> digest = shared ? await_mending(*queue_, publication, bytes, deadline)
                                         : mend(*trainer_, *queue_, publication, bytes, ranges, deadline);
  const absl::Status settled = digest.ok() ? absl::OkStatus() : queue_->settle(Deadline(kUnderWay));
  lock.lock();
  if (shared && digest.ok() && *digest != publication.digest) wrong_ = publication.version;
  if (digest.ok()) {
    buffer->digest = *digest;
    shown_.show_digest(*buffer, *digest);
  }
  if (!is_over(settled)) give_up(*buffer, /*still_written=*/true);
  return digest;
}

// ---- messages ----

void RelayReceiver::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  orders_.connect(std::move(line));
  told_to_show_ = shown_.count() >= kept_ && !hide_;  // unless the sender says `hide`
  if (told_to_show_) return show_buffers();
  orders_.say({.kind = RelayMessage::Kind::kHere, .place = memory_.place});
}

// Without descriptors the sender gives this worker up and says why; the worker then reconnects and tries again.
void RelayReceiver::show_buffers() { orders_.say(shown_.message(), shown_.descriptors()); }

// Its engine reads the buffer through a mapping that is read-only: others share it, and must not be changed by mistake.
absl::StatusOr<ShownMemory> RelayReceiver::make_buffer() const {
  BASCULE_ASSIGN(ShownMemory buffer, memory_.make_buffer(bytes_));
  BASCULE_ASSIGN(const ReachedMemory same, memory_.import(buffer.descriptor.get(), memory_.place, buffer.allocated));
  buffer.read_only = {same.owner, same.bytes.data()};
  return buffer;
}

// On the thread that maps. Making a model's buffers may take long.
void RelayReceiver::make_shown() {
  std::unique_lock lock(mutex_);
  absl::Status status;
  const std::size_t before = shown_.count();
  while (status.ok() && shown_.count() < wanted_) {
    lock.unlock();
    absl::StatusOr<ShownMemory> buffer = make_buffer();
    lock.lock();
    status = buffer.status();
    if (buffer.ok()) shown_.show(*std::move(buffer));
  }
  making_ = false;
  if (shown_.count() < kept_) {
    if (told_to_show_)
      orders_.say(
          {.kind = RelayMessage::Kind::kBuffers, .place = memory_.place, .why = std::string(message_of(status))});
    hide_ = true;
  } else if (!told_to_show_) {
    hide_ = true;  // the connection was lost meanwhile
  } else if (shown_.count() > before) {
    show_buffers();
  }
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
      hide_ = false;
      // If others share them, one may stay on an old version: the others then go on with one more.
      wanted_ = std::min(kept_ + (message->share ? 1 : 0), kMostBuffers);
      if (shown_.count() >= kept_ && !message->share) return show_buffers();
      if (!std::exchange(making_, true)) engines_.run([this] { make_shown(); });
      return;
    case RelayMessage::Kind::kHide:
      told_to_show_ = false;
      hide_ = true;
      return;
    case RelayMessage::Kind::kFrom:
    case RelayMessage::Kind::kOver: orders_.hear(*message); return changed_.notify_all();
    default: return;  // only workers send these
  }
}

void RelayReceiver::close() {
  const std::lock_guard lock(mutex_);
  orders_.disconnect();
  engines_.forget_all();
  changed_.notify_all();
}

// ---- a version ----

absl::Status RelayReceiver::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  BASCULE_ASSIGN(const RelayMessage take, parse_message(bytes));
  if (take.kind != RelayMessage::Kind::kTake) return invalid_argument("a relay's delivery begins with another message");
  {
    const std::lock_guard lock(mutex_);
    shown_.all().free_untaken();
    if (std::exchange(hide_, false)) shown_.hide();
    orders_.begin(take);
  }
  Arrival arrival;
  const QueueTurns::Turn turn(turns_, deadline);  // if another version is still read again, the deadline has passed
  absl::Status received =
      turn ? get(publication, take, arrival, deadline) : deadline_exceeded("the version did not come in time");
  // Until it is settled, the device may still write the buffer and read the source.
  const absl::Status settled = received.ok() || !turn ? received : queue_->settle(Deadline(kUnderWay));
  {
    const std::lock_guard lock(mutex_);
    orders_.say({.kind = received.ok() ? RelayMessage::Kind::kGot : RelayMessage::Kind::kLeft, .number = take.number});
  }
  std::optional<Digest> digest;
  const bool got = received.ok();
  if (got) {
    absl::StatusOr<std::optional<Digest>> made = digest_of(publication, arrival, deadline);
    received = made.status();
    if (made.ok()) {
      digest = *made;
      shown_.show_digest(*arrival.buffer, digest);
    }
  }
  const std::lock_guard lock(mutex_);
  if (received.ok()) {
    shown_.all().came(*arrival.buffer, digest);
  } else {
    // Others may copy from here, and would wait for a version that is no longer shown.
    if (got) orders_.say({.kind = RelayMessage::Kind::kLeft, .number = take.number});
    if (arrival.buffer != nullptr) give_up(*arrival.buffer, /*still_written=*/!is_over(settled));
  }
  orders_.end();
  changed_.notify_all();
  return received;
}

void RelayReceiver::give_up(Buffer& buffer, bool still_written) {
  if (still_written) written_.push_back(buffer.memory);
  shown_.give_up(buffer, still_written);
}

absl::Status RelayReceiver::get(const Publication& publication, const RelayMessage& take, Arrival& arrival,
                                Deadline deadline) {
  if (publication.bytes != bytes_)
    return invalid_argument("expected a version of ", bytes_, " bytes, found ", publication.bytes);
  if (take.share) {
    arrival.verify = take.verify || digest_ == DigestMode::kAlways;
    BASCULE_ASSIGN(const bool shared, share(publication, arrival, deadline));
    if (shared) return absl::OkStatus();
    BASCULE_TRY(queue_->settle(Deadline(kUnderWay)));
    const std::lock_guard lock(mutex_);
    if (arrival.buffer != nullptr) give_up(*arrival.buffer, /*still_written=*/false);
    arrival = {};
  }
  BASCULE_ASSIGN(arrival.buffer, begin_copy(publication, take));
  return copy(publication, take, *arrival.buffer, deadline);
}

// The digest of what has come. If the owner of a shared buffer does not show one, its bytes are digested here.
absl::StatusOr<std::optional<Digest>> RelayReceiver::digest_of(const Publication& publication, const Arrival& arrival,
                                                               Deadline deadline) {
  const bool shared = arrival.buffer->lease != nullptr;
  if (!shared || arrival.verify) return queue_->finish(deadline);
  if (digest_ == DigestMode::kOff) return std::nullopt;
  if (const std::optional<Digest> shown = arrival.owner->await_digest(publication, deadline)) return shown;
  BASCULE_TRY(queue_->digest({arrival.buffer->memory.get(), publication.bytes}, true, std::nullopt));
  return queue_->finish(deadline);
}

absl::StatusOr<RelayReceiver::Buffer*> RelayReceiver::begin_copy(const Publication& publication,
                                                                 const RelayMessage& take) {
  std::unique_lock lock(mutex_);
  const Deadline soon(kLeaseEnds);
  while (shown_.waits_for_leases(take.spared)) {
    if (soon.passed()) shown_.stuck(take.spared);
    changed_.wait_for(lock, kShortPause);
  }
  BASCULE_ASSIGN(Buffer* const buffer, shown_.begin(publication.version, take.spared));
  if (!buffer->place) orders_.say({.kind = RelayMessage::Kind::kAlone, .number = take.number});
  return buffer;
}

// Finds how much of the version its source has. If an engine cannot give it, asks for another source.
absl::StatusOr<std::optional<RelayReceiver::Found>> RelayReceiver::look(const Publication& publication) {
  if (orders_.asks()) return std::nullopt;
  Found found{.source = trainer_, .engine = nullptr};
  if (orders_.source() != kTrainer) {
    const auto engine = engines_.find(orders_.source());
    if (engine && !*engine) return std::nullopt;  // being mapped
    found.source = found.engine = engine.value_or(nullptr);
  }
  const absl::StatusOr<std::optional<std::uint64_t>> bytes =
      found.source ? found.source->available(publication) : absl::NotFoundError("it was not introduced");
  if (bytes.ok() && *bytes) {
    found.bytes = **bytes;
    return found;
  }
  if (bytes.ok() && !orders_.is_whole()) return std::nullopt;
  if (orders_.source() == kTrainer) return bytes.status();
  orders_.ask_for_another(bytes.ok() ? absl::NotFoundError(kGone) : bytes.status());
  return std::nullopt;
}

// Leases the buffer in which the owner has the version, unless that is done. Returns false, and asks for another
// source, if it cannot be read there.
bool RelayReceiver::borrow(const Publication& publication, const Found& found, Arrival& arrival) {
  absl::Status status;
  if (publication.version == wrong_) {
    status = absl::DataLossError("its copy of that version is wrong");
  } else if (arrival.buffer == nullptr) {
    absl::StatusOr<std::optional<EngineBuffers::Shared>> lent = found.engine->share(publication);
    if (lent.ok() && *lent) {
      arrival.buffer = shown_.all().borrow(publication.version, std::move((*lent)->memory),
                                           std::make_shared<const ProcessFd>(std::move((*lent)->lease)));
      arrival.owner = found.engine;
      arrival.place = found.engine->found().buffer;
    } else {
      status = lent.ok() ? absl::NotFoundError(kGone) : lent.status();
    }
  } else if (found.engine->found().buffer != arrival.place) {
    status = absl::NotFoundError("it receives that version into another buffer");
  }
  if (!status.ok()) orders_.ask_for_another(status);
  return status.ok();
}

// Returns false if the version must be copied after all.
absl::StatusOr<bool> RelayReceiver::share(const Publication& publication, Arrival& arrival, Deadline deadline) {
  std::uint64_t here = 0;
  microseconds pause = kShortPause;
  while (arrival.buffer == nullptr || here < publication.bytes) {
    std::uint64_t end = 0;
    {
      std::unique_lock lock(mutex_);
      BASCULE_TRY(orders_.may_go_on(deadline));
      if (!orders_.shares()) return false;
      BASCULE_ASSIGN(const std::optional<Found> found, look(publication));
      if (found && borrow(publication, *found, arrival)) end = found->bytes;
      if (end <= here) {
        changed_.wait_for(lock, pause);
        pause = std::min(2 * pause, here > 0 ? kShortPause : kLongPause);
        continue;
      }
    }
    if (arrival.verify)
      BASCULE_TRY(queue_->digest_behind(nullptr, {arrival.buffer->memory.get(), publication.bytes}, here, end));
    here = end;
    pause = kShortPause;
  }
  return true;
}

absl::Status RelayReceiver::copy(const Publication& publication, const RelayMessage& take, Buffer& buffer,
                                 Deadline deadline) {
  const std::span<std::byte> to(buffer.memory.get(), publication.bytes);
  const bool digests = take.verify || digest_ != DigestMode::kOff;
  const CopySizes sizes{.bytes = publication.bytes, .piece = memory_.piece_bytes, .handed_on = take.handed_on};
  std::uint64_t asked = 0, arrived = 0;
  microseconds pause = kShortPause;
  while (true) {
    BASCULE_ASSIGN(const std::uint64_t here, queue_->arrived());
    if (asked > 0 && here > arrived) {
      arrived = here;
      shown_.advance(buffer, arrived);
      pause = kShortPause;
    }
    if (asked == publication.bytes && arrived == asked) return absl::OkStatus();
    std::optional<Found> found;
    {
      std::unique_lock lock(mutex_);
      BASCULE_TRY(orders_.may_go_on(deadline));
      if (asked < publication.bytes && asked - arrived < sizes.ahead()) {
        BASCULE_ASSIGN(found, look(publication));
      }
      if (!found || std::min(asked + sizes.piece, publication.bytes) > found->bytes) {
        changed_.wait_for(lock, pause);
        pause = std::min(2 * pause, arrived < asked ? kShortPause : kLongPause);
        continue;
      }
    }
    const std::uint64_t end = sizes.end(asked, found->bytes);
    BASCULE_TRY(found->source->read(publication, {asked, end}, {.memory = to, .queue = *queue_, .digesting = digests}));
    asked = end;
    pause = kShortPause;
  }
}

}  // namespace bascule::inline v0::relay
