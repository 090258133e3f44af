// Arrivals: a worker's receive buffers, and the version that comes into one of them: what the sender said of its
// delivery, how much of it is there, its digest. One version comes at a time,
// in one broadcast or in several, one after the other.
//
//   begin() ──▶ ( next() ──▶ go_on() ──▶ a broadcast ──▶ went() )… ──▶ digest() ──▶ end() ──▶ take() ──▶ end_read()
//
// It knows no communicators and no threads: every call is under its owner's mutex, but for digest().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/schemes/deliveries/receive_buffers.h>
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/place.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class Arrivals {
 public:
  // Before any other call: receive buffers of `bytes`, `kept` of them, in `place`.
  absl::Status open(const std::shared_ptr<Place>& place, std::uint64_t bytes, std::size_t kept,
                    std::uint64_t piece_bytes);

  // ---- what came ----

  bool has(Version version) { return buffers_.whole(version) != nullptr; }
  SlotView take(Version version, Epoch epoch) { return buffers_.take(*buffers_.whole(version), epoch); }  // has() it
  void end_read(std::uint32_t number) { buffers_.end_read(number); }

  // ---- what the sender says ----

  // RESOURCE_EXHAUSTED, INVALID_ARGUMENT: it is not taken here.
  absl::Status begin(const Publication& publication, const GroupMessage& deliver);
  void hear(const GroupMessage& message);  // `again` or `over`; also of a delivery that has not begun here
  void forget_early() { early_.clear(); }

  // ---- the version that comes ----

  bool any() const { return incoming_.has_value(); }
  bool is_incoming(std::uint64_t number) const { return incoming_ && incoming_->number == number; }
  std::uint64_t number() const { return incoming_ ? incoming_->number : 0; }  // of its delivery; 0: none comes
  std::uint64_t there() const { return incoming_ ? incoming_->there : 0; }    // its first bytes
  std::uint64_t bytes() const { return buffers_.bytes(); }

  // The next six: one comes.
  CommGroupId group() const { return incoming_->group; }  // by which it came last
  bool is_over() const { return incoming_->over; }        // the sender gave it up
  bool is_all_there() const;
  bool has_next() const { return incoming_->next && !incoming_->under_way; }
  std::optional<GroupMessage>
  next();  // says in which group it goes on, and from which byte; none, while one is under way
  // The broadcast of what is left, but for its handlers. INVALID_ARGUMENT: it cannot go on there.
  absl::StatusOr<Broadcast> go_on(const GroupMessage& message);

  // From the broadcast's handlers.
  absl::Status piece(std::uint64_t number, Stream stream, std::uint64_t begin, std::uint64_t end);
  void went(absl::Status status, std::uint64_t there);  // that broadcast is over

  // Blocks until its bytes are digested. Without the mutex, on the thread that calls end(): all bytes are there.
  absl::Status digest(Deadline deadline);
  void end(bool came, bool still_written);  // `still_written`: a communicator may write its memory on

 private:
  struct Incoming {
    ReceiveBuffers::Buffer* buffer = nullptr;
    std::uint64_t number = 0;
    std::optional<GroupMessage> next{};  // said, and not begun
    bool under_way = false;              // in a communicator
    absl::Status status{};               // of the last one
    std::uint64_t there = 0;             // a prefix that came
    bool over = false;                   // given up by the sender
    bool begun = false;                  // in some communicator
    bool unbroken = true;                // digested as it came
    CommGroupId group = 0;               // the last one
    std::optional<Digest> digest{};
  };

  std::uint64_t piece_bytes_ = 0;
  std::unique_ptr<Digester> digester_;  // digest() and a communicator's thread, in turns
  ReceiveBuffers buffers_;
  std::optional<Incoming> incoming_;
  std::map<std::uint64_t, GroupMessage> early_;  // by delivery: `again` or `over` of one that has not begun
};

}  // namespace bascule::inline v0::nccl
