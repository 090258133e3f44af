// RelayReceiver: a worker's end of a relay. It copies versions into its own receive buffers from the trainer's slot or
// another engine's buffer, as far as that is filled. Other engines may copy from here at the same time.
//
//   the source's memory ── pieces, by copy engines ──▶ a buffer here ── pieces ──▶ the buffers of other engines
//   how far it has come ── control or progress page ─▶ this thread ──────────▶ our progress page
//
// If an engine on this worker's own GPU gets the versions, this worker shares that engine's buffers: it leases each,
// and reads the bytes there. The engine shows the digest that it found; with digest=always this worker also
// digests them. It makes receive buffers only when the sender tells it to show some, or when a version must be copied
// after all.
//
// A version that came wrong is mended: its wrong ranges are read again, from the trainer's slot. In a shared buffer,
// the engine that copied it does so.
//
// add() to read_again() run on the prepare thread, receive() on a separate thread, the others on the I/O thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <bascule/schemes/relay/known_engines.h>
#include <bascule/schemes/relay/orders.h>
#include <bascule/schemes/relay/queue_turns.h>
#include <bascule/schemes/relay/shown_buffers.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0::relay {

class RelayReceiver final : public Reception, public ReadsAgain {
 public:
  // Versions have `bytes` bytes. If the sender tells it to, the receiver makes `kept` receive buffers, kMostBuffers at
  // most. It digests versions as they arrive unless `digest` is kOff, and then if the sender says so.
  static absl::StatusOr<std::unique_ptr<RelayReceiver>> make(RelayMemory memory, std::uint64_t bytes, std::size_t kept,
                                                             DigestMode digest);

  // add() registers a slot of the trainer that this process has mapped; remove() forgets it.
  void add(SlotId slot, ReachedMemory memory, WrittenSoFar written) {
    trainer_->add(slot, std::move(memory), std::move(written));
  }
  void remove(SlotId slot) { trainer_->remove(slot); }

  // Like the functions of ReceiverTransport. The view shows a receive buffer.
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline);
  void end_read(SlotId slot);
  std::optional<SlotView> find(SlotId slot) const;
  absl::StatusOr<Digest> read_again(const Publication& publication, SlotId view, std::span<const ByteRange> ranges,
                                    Deadline deadline) override;

  void open(std::shared_ptr<SenderLine> line) override;
  void heard(std::string bytes, std::vector<UniqueFd> descriptors) override;
  absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) override;
  void close() override;

 private:
  using Buffer = ReceiveBuffers::Buffer;
  RelayReceiver(RelayMemory memory, std::uint64_t bytes, std::size_t kept, DigestMode digest);

  struct Found {
    std::shared_ptr<Source> source;
    std::shared_ptr<EngineBuffers> engine;  // the same; null for the trainer
    std::uint64_t bytes = 0;                // of the version, that can be read
  };
  struct Arrival {
    Buffer* buffer = nullptr;                // that gets the version
    std::shared_ptr<EngineBuffers> owner{};  // of a shared buffer
    std::size_t place = 0;                   // of the buffer, among the owner's
    bool verify = false;                     // a shared buffer is digested here as well
  };
  // The mutex must be held for these.
  void show_buffers();
  absl::StatusOr<std::optional<Found>> look(const Publication& publication);
  bool borrow(const Publication& publication, const Found& found, Arrival& arrival);
  void give_up(Buffer& buffer, bool still_written);

  absl::StatusOr<ShownMemory> make_buffer() const;
  void make_shown();
  absl::Status get(const Publication& publication, const RelayMessage& take, Arrival& arrival, Deadline deadline);
  absl::StatusOr<bool> share(const Publication& publication, Arrival& arrival, Deadline deadline);
  absl::StatusOr<std::optional<Digest>> digest_of(const Publication& publication, const Arrival& arrival,
                                                  Deadline deadline);
  absl::StatusOr<Buffer*> begin_copy(const Publication& publication, const RelayMessage& take);
  absl::Status copy(const Publication& publication, const RelayMessage& take, Buffer& buffer, Deadline deadline);

  const RelayMemory memory_;
  const std::uint64_t bytes_;
  const std::size_t kept_;
  const DigestMode digest_;
  std::vector<std::shared_ptr<std::byte>> written_;  // a device that hangs may still write these; freed after the queue
  QueueTurns turns_;
  std::unique_ptr<DeviceQueue> queue_;  // used in turns
  const std::shared_ptr<SlotSource> trainer_ = std::make_shared<SlotSource>();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Orders orders_;
  ShownBuffers shown_;
  bool told_to_show_ = false, making_ = false;  // on this connection; the buffers are being made
  std::size_t wanted_ = 0;                      // buffers to show
  bool hide_ = false;                           // no longer shows buffers; the next receive() gives them up
  Version wrong_ = 0;                           // its shared copy came wrong, and was not mended
  KnownEngines engines_;                        // its thread ends first
};

}  // namespace bascule::inline v0::relay
