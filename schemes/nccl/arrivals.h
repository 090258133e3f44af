// Arrivals: a worker's receive buffers and, for the version that is coming into one of them, the sender's messages
// about its delivery, how many bytes have come, and its digest. One version comes at a time, in one or several
// consecutive broadcasts.
//
//   begin() ──▶ ( next() ──▶ go_on() ──▶ a broadcast ──▶ went() )… ──▶ digest() ──▶ end() ──▶ take() ──▶ end_read()
//
// It knows no communicators and no threads. Every call except digest() is under its owner's mutex.
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
  // Makes `kept` receive buffers of `bytes` bytes in `place`. Call it before any other.
  absl::Status open(const std::shared_ptr<Place>& place, std::uint64_t bytes, std::size_t kept,
                    std::uint64_t piece_bytes);

  // ---- what came ----

  bool has(Version version) { return buffers_.whole(version) != nullptr; }
  // Requires has(version).
  SlotView take(Version version, Epoch epoch) { return buffers_.take(*buffers_.whole(version), epoch); }
  void end_read(std::uint32_t number) { buffers_.end_read(number); }
  std::optional<SlotView> find(SlotId slot) const { return buffers_.find(slot); }

  // ---- the sender's messages ----

  // Returns RESOURCE_EXHAUSTED or INVALID_ARGUMENT if this worker cannot take the delivery.
  absl::Status begin(const Publication& publication, const GroupMessage& deliver);
  void hear(const GroupMessage& message);  // `again` or `over`; its delivery need not have begun here
  void forget_early() { early_.clear(); }

  // ---- the version that comes ----

  bool any() const { return incoming_.has_value(); }
  bool is_incoming(std::uint64_t number) const { return incoming_ && incoming_->number == number; }
  std::uint64_t number() const { return incoming_ ? incoming_->number : 0; }  // its delivery's; 0 if no version comes
  std::uint64_t there() const { return incoming_ ? incoming_->there : 0; }  // the bytes that have come, from the first
  std::uint64_t bytes() const { return buffers_.bytes(); }

  // The next six require that a version is coming.
  CommGroupId group() const { return incoming_->group; }  // the group of its last broadcast
  bool is_over() const { return incoming_->over; }        // the sender gave it up
  bool is_all_there() const;
  bool has_next() const { return incoming_->next && !incoming_->under_way; }
  // Returns, once, the group and the first byte of the next broadcast; nullopt if !has_next().
  std::optional<GroupMessage> next();
  // Returns the broadcast of the remaining bytes, without its handlers; INVALID_ARGUMENT if the delivery cannot
  // continue at the message's byte.
  absl::StatusOr<Broadcast> go_on(const GroupMessage& message);

  // Called by the broadcast's handlers.
  absl::Status piece(std::uint64_t number, Stream stream, std::uint64_t begin, std::uint64_t end);
  void went(absl::Status status, std::uint64_t there);  // the broadcast has ended

  // Blocks until the version's bytes are digested. All of them must have come. Call it without the mutex, on the thread
  // that calls end().
  absl::Status digest(Deadline deadline);
  void end(bool came, bool still_written);  // `still_written`: a communicator may still write its memory

 private:
  struct Incoming {
    ReceiveBuffers::Buffer* buffer = nullptr;
    std::uint64_t number = 0;
    std::optional<GroupMessage> next{};  // announced, not begun
    bool under_way = false;              // a communicator is moving it
    absl::Status status{};               // of the last broadcast
    std::uint64_t there = 0;             // bytes that have come, from the first
    bool over = false;                   // the sender gave it up
    bool begun = false;                  // a communicator has begun it
    bool unbroken = true;                // all bytes so far were digested as they came
    CommGroupId group = 0;               // the group of the last broadcast
    std::optional<Digest> digest{};
  };

  std::uint64_t piece_bytes_ = 0;
  std::unique_ptr<Digester> digester_;  // used by digest() and a communicator's thread, alternately
  ReceiveBuffers buffers_;
  std::optional<Incoming> incoming_;
  std::map<std::uint64_t, GroupMessage> early_;  // by delivery: its `again` or `over`, before it has begun
};

}  // namespace bascule::inline v0::nccl
