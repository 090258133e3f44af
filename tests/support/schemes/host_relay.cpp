#include "support/schemes/host_relay.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/schemes/relay/dispatcher.h>
#include <bascule/schemes/relay/options.h>
#include <bascule/schemes/relay/relay_receiver.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

class HostMemory final : public HostWindow {
 public:
  explicit HostMemory(std::span<const std::byte> bytes) : bytes_(bytes) {}
  const std::string& how() const override { return how_; }
  std::uint64_t piece_bytes() const override { return kRelayPiece; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  const std::span<const std::byte> bytes_;
  const std::string how_ = "copied by a thread";
};

// The calls of a queue that a relay receiver uses, done at once.
class HostQueue final : public DeviceQueue {
 public:
  explicit HostQueue(HostQueueHooks hooks) : hooks_(std::move(hooks)) {}

  int device() const override { return kHost; }
  absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int, Access) override {
    if (hooks_.before_window) BASCULE_TRY(hooks_.before_window());
    return std::make_shared<HostMemory>(bytes);
  }
  absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                       Digesting digesting) override {
    if (hooks_.before_copy) BASCULE_TRY(hooks_.before_copy());
    const std::span<const std::byte> bytes = static_cast<HostMemory&>(from).bytes();
    std::memcpy(slot.data() + begin, bytes.data() + begin, end - begin);
    if (hooks_.after_copy) hooks_.after_copy(slot.subspan(begin, end - begin));
    arrived_ = end;
    digest_.reset();
    if (digesting.all && end == slot.size()) digest_ = kernels::digest(slot, pool_);
    return absl::OkStatus();
  }
  absl::Status copy_to_host(const std::byte* slot, HostWindow& to, Deadline) override {
    if (hooks_.before_copy_to_host) BASCULE_TRY(hooks_.before_copy_to_host());
    const std::span<const std::byte> bytes = static_cast<HostMemory&>(to).bytes();
    std::memcpy(const_cast<std::byte*>(bytes.data()), slot, bytes.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::uint64_t> arrived() override { return arrived_; }
  absl::StatusOr<std::optional<Digest>> finish(Deadline) override {
    if (hooks_.before_finish) BASCULE_TRY(hooks_.before_finish());
    return digest_;
  }
  absl::Status settle(Deadline) override { return hooks_.before_settle ? hooks_.before_settle() : absl::OkStatus(); }

  kernels::TileTotal total() const override { return {}; }
  absl::Status check(Stream) override { return not_asked(); }
  absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into, std::span<const kernels::Segment>, std::size_t, std::uint64_t,
                                                   std::span<const kernels::Arithmetic>, OfRegions) override {
    return not_asked();
  }
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t, std::string_view) override { return not_asked(); }
  absl::Status run(DevicePlan&, std::span<const std::byte* const>, const std::byte*, Digesting, Caller) override {
    return not_asked();
  }
  absl::Status digest(std::span<const std::byte> slot, Digesting, Caller) override {
    digest_ = kernels::digest(slot, pool_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceTable>> make_table(std::uint64_t, std::span<const std::uint8_t>) override {
    return not_asked();
  }
  absl::StatusOr<std::unique_ptr<DeviceTable>> open_table(std::span<kernels::TileTotal>) override {
    return not_asked();
  }
  absl::Status digest_behind(Stream, std::span<const std::byte> slot, std::uint64_t, std::uint64_t end) override {
    digest_.reset();
    if (end == slot.size()) digest_ = kernels::digest(slot, pool_);
    return absl::OkStatus();
  }
  absl::Status run_behind(Stream) override { return not_asked(); }
  absl::Status run_in_pieces(DevicePlan&, std::span<const std::byte* const>, const std::byte*, Digesting, Caller,
                             std::atomic<std::uint64_t>*) override {
    return not_asked();
  }
  absl::Status watch_pieces(std::atomic<std::uint64_t>&, Deadline) override { return not_asked(); }
  absl::Status copy_out(const std::byte*, HostWindow&, std::atomic<std::uint64_t>&, Deadline) override {
    return not_asked();
  }

 private:
  static absl::Status not_asked() { return absl::UnimplementedError("a relay does not use this call"); }

  const HostQueueHooks hooks_;
  std::uint64_t arrived_ = 0;
  std::optional<Digest> digest_;
  kernels::ThreadPool pool_{1};
};

absl::StatusOr<relay::ShownMemory> make_buffer(std::uint64_t bytes) {
  BASCULE_ASSIGN(SlotMemory made, make_memfd("bascule-buffer", bytes));
  const auto memory = std::make_shared<SlotMemory>(std::move(made));
  relay::ShownMemory shown;
  shown.memory = {memory, memory->writable().data()};
  shown.descriptor = std::move(memory->descriptor);
  shown.allocated = bytes;
  return shown;
}

absl::StatusOr<ReachedMemory> reach(int descriptor, std::uint64_t bytes) {
  BASCULE_TRY(check_sealed(descriptor, bytes));
  BASCULE_ASSIGN(Mapping mapping, Mapping::map(descriptor, bytes, Access::kReadOnly));
  const auto owner = std::make_shared<Mapping>(std::move(mapping));
  return ReachedMemory{.bytes = owner->bytes(), .device = kHost, .owner = owner};
}

class HostRelaySender final : public SenderTransport {
 public:
  explicit HostRelaySender(const Endpoint& endpoint)
      : dispatcher_(relay::kShape.in(endpoint).value_or(RelayShape::kChain), endpoint.digest) {}

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int) override {
    return make_memfd("bascule-slot", layout.bytes());
  }
  absl::StatusOr<Offer> offer(WorkerId worker, ConnectionKind, std::span<const OfferedSlot> slots) override {
    dispatcher_.joined(worker);
    Offer offer;
    for (const OfferedSlot& slot : slots) offer.descriptors.push_back(slot.memory->descriptor.get());
    return offer;
  }
  void remove(WorkerId worker) override { dispatcher_.removed(worker); }
  std::string path(WorkerId worker) const override { return std::string(dispatcher_.path_of(worker)); }
  Delivery* delivery() override { return &dispatcher_; }

 private:
  relay::Dispatcher dispatcher_;
};

std::string place_for_itself() {
  static std::atomic<int> places = 0;
  return cat("process ", ::getpid(), ", worker ", ++places);
}

class HostRelayReceiver final : public ReceiverTransport {
 public:
  HostRelayReceiver(const Endpoint& endpoint, HostQueueHooks hooks, std::string place)
      : hooks_(std::move(hooks)), place_(std::move(place)), kept_(endpoint.versions_kept), digest_(endpoint.digest) {}

  absl::Status accept(ReceivedOffer offer) override {
    if (!relay_receiver_) {
      BASCULE_ASSIGN(relay_receiver_,
                     relay::RelayReceiver::make(host_relay_memory(hooks_, place_), offer.slot_bytes, kept_, digest_));
    }
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      BASCULE_ASSIGN(ReachedMemory slot, reach(offer.descriptors[i].get(), offer.slot_bytes));
      relay_receiver_->add(offer.slots[i], std::move(slot), offer.written);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    return relay_receiver_->prepare(publication, deadline);
  }
  std::optional<SlotView> find(SlotId slot) const override { return relay_receiver_->find(slot); }
  void end_read(SlotId slot) override { relay_receiver_->end_read(slot); }
  void unmap(SlotId slot) override { relay_receiver_->remove(slot); }
  Reception* reception() override { return relay_receiver_.get(); }
  ReadsAgain* reads_again() override { return relay_receiver_.get(); }

 private:
  const HostQueueHooks hooks_;
  const std::string place_;
  const std::size_t kept_;
  const DigestMode digest_;
  std::unique_ptr<relay::RelayReceiver> relay_receiver_;
};

Scheme scheme_of(std::string name, HostQueueHooks hooks, std::string (*place)()) {
  return {.name = std::move(name),
          .needs_descriptors = true,
          .to_own_memory = true,
          .options = relay::options(),
          .make_sender = [](const Endpoint& endpoint, Epoch) { return std::make_unique<HostRelaySender>(endpoint); },
          .make_receiver =
              [hooks = std::move(hooks), place](const Endpoint& endpoint) {
                return std::make_unique<HostRelayReceiver>(endpoint, hooks, place());
              }};
}

}  // namespace

relay::RelayMemory host_relay_memory(HostQueueHooks hooks, std::string place) {
  return {.device = kHost,
          .place = std::move(place),
          .piece_bytes = kRelayPiece,
          .open_queue = [hooks = std::move(hooks)] { return std::make_unique<HostQueue>(hooks); },
          .make_buffer = make_buffer,
          .import = [](int descriptor, std::string_view, std::uint64_t bytes) { return reach(descriptor, bytes); }};
}

const Scheme& host_relay_scheme() {
  static const Scheme made = host_relay_scheme({});
  return made;
}

const Scheme& shared_relay_scheme() {
  static const Scheme made = scheme_of("shared-relay", {}, [] { return std::string("host"); });
  return made;
}

Scheme host_relay_scheme(HostQueueHooks hooks) { return scheme_of("host-relay", std::move(hooks), place_for_itself); }

}  // namespace bascule::test
