#include <bascule/schemes/nccl/arrivals.h>

#include <span>
#include <string_view>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

// Messages seldom come before their delivery begins, which follows soon, so there are always fewer.
constexpr std::size_t kMostEarly = 64;

}  // namespace

absl::Status Arrivals::open(const std::shared_ptr<Place>& place, std::uint64_t bytes, std::size_t kept,
                            std::uint64_t piece_bytes) {
  BASCULE_ASSIGN(digester_, place->open_digester());
  piece_bytes_ = piece_bytes;
  const auto allocate = [place](std::uint64_t size, std::string_view what) { return place->allocate(size, what); };
  return buffers_.open(allocate, place->device(), bytes, kept);
}

// ---- the sender's messages ----

absl::Status Arrivals::begin(const Publication& publication, const GroupMessage& deliver) {
  if (publication.bytes != bytes())
    return invalid_argument("nccl: expected a version of ", bytes(), " bytes, found ", publication.bytes,
                            "; start this worker again");
  BASCULE_ASSIGN(ReceiveBuffers::Buffer* const buffer, buffers_.begin(publication.version));
  incoming_ = Incoming{.buffer = buffer, .number = deliver.number, .next = deliver, .group = deliver.group};
  const auto early = early_.find(deliver.number);
  if (early == early_.end()) return absl::OkStatus();
  incoming_->over = early->second.kind == GroupMessage::Kind::kOver;
  if (!incoming_->over) incoming_->next = early->second;
  return absl::OkStatus();
}

void Arrivals::hear(const GroupMessage& message) {
  if (!is_incoming(message.number)) {
    early_[message.number] = message;
    if (early_.size() > kMostEarly) early_.erase(early_.begin());
    return;
  }
  if (message.kind == GroupMessage::Kind::kOver) incoming_->over = true;
  if (message.kind == GroupMessage::Kind::kAgain) incoming_->next = message;
}

// ---- the version that comes ----

bool Arrivals::is_all_there() const {
  return incoming_->begun && !incoming_->under_way && incoming_->status.ok() && incoming_->there == bytes() &&
         !incoming_->next;
}

std::optional<GroupMessage> Arrivals::next() {
  return has_next() ? std::exchange(incoming_->next, std::nullopt) : std::nullopt;
}

absl::StatusOr<Broadcast> Arrivals::go_on(const GroupMessage& message) {
  incoming_->group = message.group;
  if (message.from % piece_bytes_ != 0 || message.from > incoming_->there)
    return invalid_argument("nccl: expected delivery ", message.number, " to go on at a piece of ", piece_bytes_,
                            " bytes, at ", incoming_->there, " or before, found ", message.from,
                            "; the sender runs another build: restart it and this worker");
  incoming_->under_way = true;
  incoming_->status = absl::OkStatus();
  incoming_->unbroken = message.from == 0 && bytes() > 0 && !incoming_->begun;
  incoming_->begun = true;
  incoming_->there = message.from;  // the bytes after it are written again
  return Broadcast{.number = message.number,
                   .memory = incoming_->buffer->memory,
                   .bytes = bytes(),
                   .from = message.from,
                   .piece_bytes = piece_bytes_,
                   .written = {},
                   .enqueued = {},
                   .done = {}};
}

absl::Status Arrivals::piece(std::uint64_t number, Stream stream, std::uint64_t begin, std::uint64_t end) {
  if (!is_incoming(number) || !incoming_->unbroken) return absl::OkStatus();  // its digest is not used
  return digester_->digest(stream, {incoming_->buffer->memory.get(), bytes()}, begin, end);
}

void Arrivals::went(absl::Status status, std::uint64_t there) {
  incoming_->under_way = false;
  incoming_->status = std::move(status);
  incoming_->there = there;
}

absl::Status Arrivals::digest(Deadline deadline) {
  // A version that came in several broadcasts is digested in memory.
  const std::span<const std::byte> slot(incoming_->buffer->memory.get(), bytes());
  if (!incoming_->unbroken) BASCULE_TRY(digester_->digest(nullptr, slot, 0, slot.size()));
  BASCULE_ASSIGN(incoming_->digest, digester_->finish(deadline));
  return absl::OkStatus();
}

void Arrivals::end(bool came, bool still_written) {
  if (came) {
    buffers_.came(*incoming_->buffer, incoming_->digest);
  } else {
    buffers_.give_up(*incoming_->buffer, still_written);
  }
  early_.erase(early_.begin(), early_.upper_bound(incoming_->number));
  incoming_.reset();
}

}  // namespace bascule::inline v0::nccl
