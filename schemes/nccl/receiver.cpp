#include <bascule/schemes/nccl/receiver.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <bascule/schemes/landing.h>
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/offer.h>
#include <bascule/schemes/nccl/words.h>
#include <bascule/transport/text.h>

namespace bascule::inline v0::nccl {
namespace {

constexpr std::uint64_t kWarmBytes = 4u << 20;

// A delivery whose words come before its receive() begins is rare, and receive() follows: these are never so many.
constexpr std::size_t kMostEarly = 64;

// An abort that has not come back by then will not: what it uses is lost to this process.
constexpr absl::Duration kLeaves = absl::Seconds(10);

// The delivery that receive() waits for. Under the mutex.
struct Coming {
  std::uint64_t number = 0;
  std::optional<Word> go_on;  // said, and not begun
  bool under_way = false;     // in a communicator
  absl::Status status;        // of the last one
  std::uint64_t there = 0;    // a prefix that came
  bool over = false;          // given up by the sender
  bool begun = false;         // in some communicator
  bool unbroken = true;       // digested as it came
  CircleId circle = 0;        // the last one
};

}  // namespace

class Receiver::Desk : public std::enable_shared_from_this<Desk> {
 public:
  Desk(Ground ground, const Endpoint& endpoint)
      : ground_(std::move(ground)),
        device_(endpoint.device),
        kept_(endpoint.versions_kept),
        ctas_(endpoint.ctas.value_or(0)) {}

  absl::Status accept(const ReceivedOffer& offer);
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline);
  void release(std::uint32_t number);
  void open(std::shared_ptr<SenderLine> line);
  void hear(std::string_view bytes);
  absl::Status receive(const Publication& publication, std::string_view bytes, Deadline deadline);
  void close();
  void wait_left(Deadline deadline);

 private:
  struct Joined {
    std::unique_ptr<Communicator> communicator;
    std::optional<Clock::time_point> leaves;  // since then
  };

  void say(const Word& word);  // under the mutex, as the next two
  void expect(const Word& first);
  void refuse(CircleId circle, std::uint64_t number, const absl::Status& why);
  void join(const Word& word);
  void warm(CircleId circle);
  void made(CircleId circle, const absl::Status& status);
  void ended(CircleId circle);
  absl::Status go_on(std::unique_lock<std::mutex>& lock, Landing::Copy& copy, const Word& word);
  absl::Status wait_for(std::unique_lock<std::mutex>& lock, Landing::Copy& copy, Deadline deadline);
  bool poisoned() const;

  const Ground ground_;
  const int device_;
  const std::size_t kept_;
  const int ctas_;

  // Set by the first accept(), before any other call.
  const Library* library_ = nullptr;
  std::uint64_t piece_bytes_ = 0;
  std::shared_ptr<Place> place_;
  std::shared_ptr<std::byte> scratch_;
  std::unique_ptr<Digester> digester_;  // receive() and its communicator's thread, in turns

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<SenderLine> line_;  // null: no connection
  Landing landing_;
  std::optional<Coming> coming_;
  std::map<std::uint64_t, Word> early_;  // by delivery: `again` or `over` of one whose receive() has not begun
  std::map<CircleId, Joined> joined_;
};

// ---- the sender's memory: there is none here ----

absl::Status Receiver::Desk::accept(const ReceivedOffer& offer) {
  if (place_) {
    const std::lock_guard lock(mutex_);
    if (poisoned())
      return unimplemented("nccl: an abort of a communicator of this process has not come back; restart this process");
    return absl::OkStatus();
  }
  BASCULE_ASSIGN(const NcclOffer theirs, parse_offer(offer.bytes));
  BASCULE_ASSIGN(library_, ground_.library());
  BASCULE_ASSIGN(const Environment ours, read_environment(*library_));
  BASCULE_TRY(check_same(ours, theirs.environment, "this worker", "the sender"));
  BASCULE_ASSIGN(std::shared_ptr<Place> place, ground_.place(device_));
  BASCULE_ASSIGN(scratch_, place->allocate(kWarmBytes, "a broadcast that carries nothing"));
  BASCULE_ASSIGN(digester_, place->open_digester());
  piece_bytes_ = theirs.piece_bytes;
  const std::lock_guard lock(mutex_);
  const auto allocate = [place](std::uint64_t bytes, std::string_view what) { return place->allocate(bytes, what); };
  BASCULE_TRY(landing_.open(allocate, place->device(), offer.slot_bytes, kept_));
  place_ = std::move(place);
  return absl::OkStatus();
}

absl::StatusOr<SlotView> Receiver::Desk::prepare(const Publication& publication, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Landing::Copy* copy = nullptr;
  const auto came = [&] { return (copy = landing_.whole(publication.version)) != nullptr || !coming_; };
  if (!changed_.wait_until(lock, deadline.at(), came) || copy == nullptr)
    return failed_precondition("nccl: version ", publication.version, " did not come");
  return landing_.take(*copy, publication.slot.epoch);
}

void Receiver::Desk::release(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  landing_.release(number);
}

// ---- words ----

void Receiver::Desk::open(std::shared_ptr<SenderLine> line) {
  const std::lock_guard lock(mutex_);
  line_ = std::move(line);
}

void Receiver::Desk::say(const Word& word) {
  if (line_) line_->say(to_bytes(word));
}

bool Receiver::Desk::poisoned() const {
  const Clock::time_point since = Clock::now() - absl::ToChronoNanoseconds(kLeaves);
  for (const auto& [circle, joined] : joined_)
    if (joined.leaves && *joined.leaves < since) return true;
  return false;
}

void Receiver::Desk::hear(std::string_view bytes) {
  const absl::StatusOr<Word> heard = parse_word(bytes);
  if (!heard.ok()) return;  // a sender of our version says none such
  const Word& word = *heard;
  if (word.kind == Word::Kind::kMake) return join(word);
  const std::lock_guard lock(mutex_);
  switch (word.kind) {
    case Word::Kind::kAsk:
      return say(poisoned() ? Word{.kind = Word::Kind::kFailed, .circle = word.circle, .why = "an abort hangs"}
                            : Word{.kind = Word::Kind::kReady, .circle = word.circle});
    case Word::Kind::kWarm: return warm(word.circle);
    case Word::Kind::kDrop: {
      const auto joined = joined_.find(word.circle);
      if (joined == joined_.end()) return say({.kind = Word::Kind::kDropped, .circle = word.circle});
      if (!joined->second.leaves) joined->second.leaves = Clock::now();
      if (joined->second.communicator) joined->second.communicator->abort();
      return;
    }
    case Word::Kind::kAgain:
    case Word::Kind::kOver:
      if (!coming_ || coming_->number != word.number) {
        early_[word.number] = word;
        if (early_.size() > kMostEarly) early_.erase(early_.begin());
        return;
      }
      if (word.kind == Word::Kind::kOver) coming_->over = true;
      if (word.kind == Word::Kind::kAgain) coming_->go_on = word;
      return changed_.notify_all();
    default: return;  // a worker's
  }
}

// Not under the mutex: where no thread can be started, it is made and ended within the call.
void Receiver::Desk::join(const Word& word) {
  const CircleId circle = word.circle;
  const auto self = shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    joined_[circle];
  }
  auto communicator = std::make_unique<Communicator>(
      *library_, place_, Rank{.circle = circle, .rank = word.rank, .ranks = word.ranks, .id = word.id},
      Communicator::Options{.max_ctas = ctas_},
      Communicator::Handlers{.made = [self, circle](const absl::Status& status) { self->made(circle, status); },
                             .ended = [self, circle] { self->ended(circle); }});
  const std::lock_guard lock(mutex_);
  if (const auto joined = joined_.find(circle); joined != joined_.end())
    joined->second.communicator = std::move(communicator);
}

void Receiver::Desk::made(CircleId circle, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (status.ok()) return say({.kind = Word::Kind::kMade, .circle = circle});
  say({.kind = Word::Kind::kFailed, .circle = circle, .why = std::string(message_of(status))});
}

void Receiver::Desk::warm(CircleId circle) {
  const auto joined = joined_.find(circle);
  if (joined == joined_.end() || joined->second.leaves) return;
  joined->second.communicator->broadcast(
      {.number = 0,
       .memory = scratch_,
       .bytes = kWarmBytes,
       .from = 0,
       .piece_bytes = kWarmBytes,
       .written = {},
       .enqueued = {},
       .done = [self = shared_from_this(), circle](const absl::Status& status, std::uint64_t) {
         const std::lock_guard lock(self->mutex_);
         self->say(status.ok()
                       ? Word{.kind = Word::Kind::kWarmed, .circle = circle}
                       : Word{.kind = Word::Kind::kFailed, .circle = circle, .why = std::string(message_of(status))});
       }});
}

// Its memory is not written any more.
void Receiver::Desk::ended(CircleId circle) {
  std::unique_ptr<Communicator> gone;  // goes behind the lock
  const std::lock_guard lock(mutex_);
  if (const auto joined = joined_.find(circle); joined != joined_.end()) {
    gone = std::move(joined->second.communicator);
    joined_.erase(joined);
  }
  say({.kind = Word::Kind::kDropped,
       .circle = circle,
       .number = coming_ ? coming_->number : 0,
       .from = coming_ ? coming_->there : 0});
  changed_.notify_all();
}

// ---- a version ----

absl::Status Receiver::Desk::receive(const Publication& publication, std::string_view bytes, Deadline deadline) {
  BASCULE_ASSIGN(const Word first, parse_word(bytes));
  if (first.kind != Word::Kind::kDeliver) return invalid_argument("nccl: a strange delivery");
  std::unique_lock lock(mutex_);
  absl::StatusOr<Landing::Copy*> begun =
      publication.bytes == landing_.bytes()
          ? landing_.begin(publication.version)
          : invalid_argument("nccl: expected a version of ", landing_.bytes(), " bytes, found ", publication.bytes,
                             "; start this worker again");
  if (!begun.ok()) {
    refuse(first.circle, first.number, begun.status());
    return begun.status();
  }
  Landing::Copy* const copy = *begun;
  expect(first);
  absl::Status received = wait_for(lock, *copy, deadline);
  const bool here = received.ok();
  std::optional<Digest> digest;
  if (here) {
    const bool unbroken = coming_->unbroken;
    lock.unlock();
    // What came in several goes is digested as it lies.
    const std::span<const std::byte> slot(copy->memory.get(), publication.bytes);
    if (!unbroken) received = digester_->digest(nullptr, slot, 0, slot.size());
    if (received.ok()) {
      const absl::StatusOr<Digest> made = digester_->finish(deadline);
      received = made.status();
      if (made.ok()) digest = *made;
    }
    lock.lock();
  }
  if (received.ok()) {
    landing_.came(*copy, digest);
  } else {
    // A communicator that is left may write on until it has ended; it has the memory, too.
    landing_.give_up(*copy, /*still_written=*/!joined_.empty());
  }
  const Coming gone = *std::exchange(coming_, std::nullopt);
  early_.erase(early_.begin(), early_.upper_bound(gone.number));
  if (!here && !gone.over) refuse(gone.circle, gone.number, received);
  changed_.notify_all();
  return received;
}

void Receiver::Desk::expect(const Word& first) {
  coming_.emplace();
  coming_->number = first.number;
  coming_->go_on = first;
  coming_->circle = first.circle;
  const auto early = early_.find(first.number);
  if (early == early_.end()) return;
  coming_->over = early->second.kind == Word::Kind::kOver;
  if (!coming_->over) coming_->go_on = early->second;
}

// The delivery is not taken here. Its circle is left, since broadcasts are paired by their order: the next one would be
// taken for this one.
void Receiver::Desk::refuse(CircleId circle, std::uint64_t number, const absl::Status& why) {
  say({.kind = Word::Kind::kFailed, .circle = circle, .number = number, .why = std::string(message_of(why))});
  const auto joined = joined_.find(circle);
  if (joined == joined_.end() || joined->second.leaves) return;
  joined->second.leaves = Clock::now();
  if (joined->second.communicator) joined->second.communicator->abort();
}

absl::Status Receiver::Desk::wait_for(std::unique_lock<std::mutex>& lock, Landing::Copy& copy, Deadline deadline) {
  const std::uint64_t bytes = landing_.bytes();
  const auto all = [&] {
    return coming_->begun && !coming_->under_way && coming_->status.ok() && coming_->there == bytes && !coming_->go_on;
  };
  while (true) {
    if (!line_) return unavailable("nccl: the connection to the sender is lost");
    if (coming_->over) return absl::CancelledError("nccl: the sender gave the version up");
    if (coming_->go_on && !coming_->under_way) {
      const Word word = *std::exchange(coming_->go_on, std::nullopt);
      if (const auto joined = joined_.find(word.circle); joined != joined_.end() && !joined->second.leaves)
        BASCULE_TRY(go_on(lock, copy, word));
      continue;
    }
    if (all()) return absl::OkStatus();
    const bool woken = changed_.wait_until(lock, deadline.at(), [&] {
      return !line_ || coming_->over || (coming_->go_on && !coming_->under_way) || all();
    });
    if (!woken) return deadline_exceeded("nccl: only ", coming_->there, " of ", bytes, " bytes came in time");
  }
}

// The rest of the version, in this circle.
absl::Status Receiver::Desk::go_on(std::unique_lock<std::mutex>&, Landing::Copy& copy, const Word& word) {
  coming_->circle = word.circle;
  if (word.from % piece_bytes_ != 0 || word.from > coming_->there)
    return invalid_argument("nccl: expected delivery ", word.number, " to go on at a piece of ", piece_bytes_,
                            " bytes, at ", coming_->there, " or before, found ", word.from,
                            "; the sender is of another build, start it and this worker again");
  coming_->under_way = true;
  coming_->status = absl::OkStatus();
  coming_->unbroken = word.from == 0 && landing_.bytes() > 0 && !coming_->begun;
  coming_->begun = true;
  coming_->there = word.from;  // what lies behind is written again
  std::function<absl::Status(Stream, std::uint64_t, std::uint64_t)> enqueued;
  if (coming_->unbroken)
    enqueued = [self = shared_from_this(), memory = copy.memory, bytes = landing_.bytes(), number = word.number](
                   Stream stream, std::uint64_t begin, std::uint64_t end) {
      const std::lock_guard guard(self->mutex_);
      if (!self->coming_ || self->coming_->number != number) return absl::OkStatus();  // nobody waits for it
      return self->digester_->digest(stream, {memory.get(), bytes}, begin, end);
    };
  joined_.at(word.circle)
      .communicator->broadcast(
          {.number = word.number,
           .memory = copy.memory,
           .bytes = landing_.bytes(),
           .from = word.from,
           .piece_bytes = piece_bytes_,
           .written = {},
           .enqueued = std::move(enqueued),
           .done = [self = shared_from_this(), circle = word.circle, number = word.number](absl::Status status,
                                                                                           std::uint64_t there) {
             const std::lock_guard guard(self->mutex_);
             if (!self->coming_ || self->coming_->number != number) return;
             self->coming_->under_way = false;
             self->coming_->there = there;
             // Before this circle's `dropped`: then the sender goes on without this worker.
             if (status.ok()) self->say({.kind = Word::Kind::kGot, .number = number});
             if (!status.ok() && !absl::IsCancelled(status))
               self->say({.kind = Word::Kind::kFailed, .circle = circle, .why = std::string(message_of(status))});
             self->coming_->status = std::move(status);
             self->changed_.notify_all();
           }});
  return absl::OkStatus();
}

// ---- the end ----

void Receiver::Desk::close() {
  const std::lock_guard lock(mutex_);
  line_.reset();
  for (auto& [circle, joined] : joined_) {
    if (!joined.leaves) joined.leaves = Clock::now();
    if (joined.communicator) joined.communicator->abort();
  }
  early_.clear();
  changed_.notify_all();
}

void Receiver::Desk::wait_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [this] { return joined_.empty(); });
}

// ---- Receiver ----

Receiver::Receiver(Ground ground, const Endpoint& endpoint)
    : desk_(std::make_shared<Desk>(std::move(ground), endpoint)) {}

Receiver::~Receiver() {
  desk_->close();
  desk_->wait_left(Deadline(absl::Seconds(2)));
}

absl::Status Receiver::accept(ReceivedOffer offer) { return desk_->accept(offer); }
absl::StatusOr<SlotView> Receiver::prepare(const Publication& publication, Deadline deadline) {
  return desk_->prepare(publication, deadline);
}
void Receiver::release(SlotId slot) { desk_->release(slot.index); }
void Receiver::open(std::shared_ptr<SenderLine> line) { desk_->open(std::move(line)); }
void Receiver::heard(std::string bytes, std::vector<UniqueFd>) { desk_->hear(bytes); }
absl::Status Receiver::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  return desk_->receive(publication, bytes, deadline);
}
void Receiver::close() { desk_->close(); }

}  // namespace bascule::inline v0::nccl
