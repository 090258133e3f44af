// peer_copy: what a reader on a peer does of a version that is packed already: the copy over the link, digested as it
// comes; beside one cudaMemcpyPeerAsync of the same bytes.
#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "bench/content.h"
#include "bench/limits.h"
#include "bench/send_case.h"
#include "bench/targets.h"
#include "bench/turns.h"
#include "receiver/device_copies.h"
#include "receiver/slot_reader.h"
#include "schemes/registry.h"
#include "transport/deadline.h"
#include "transport/endpoint.h"
#include "transport/messages.h"
#include "transport/text.h"

namespace bascule::bench {
namespace {

constexpr SlotId kSlot{.epoch = 1, .index = 0};

// A slot of a scheme on a GPU, filled, and what a reader on another one makes of it: the transport's two ends, without
// a connection between them.
class SlotAndReader {
 public:
  static absl::StatusOr<std::unique_ptr<SlotAndReader>> make(Context& context) {
    auto made = std::make_unique<SlotAndReader>();
    BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(context.sync.endpoint(context.folder, "")));
    endpoint.device = context.worker_device;
    BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, nullptr));
    BASCULE_ASSIGN(made->sender_, scheme->make_sender(endpoint, kSlot.epoch));
    const std::uint64_t elements = context.options.bytes / size_of(DType::kBF16);
    BASCULE_ASSIGN(const Layout layout,
                   Layout::arrange({{"weights", DType::kBF16, {static_cast<std::int64_t>(elements)}}}, {}));
    BASCULE_ASSIGN(made->slot_, made->sender_->make_slot(kSlot, layout, context.device));
    const std::span<std::byte> bytes = made->slot_.writable();
    const Elements content = Content(context.options.seed, 1).elements("weights", elements, DType::kBF16, DType::kBF16);
    BASCULE_TRY(context.gpu->write(content, bytes.data()));
    BASCULE_TRY(context.gpu->wait());
    SlotReader reader(1);
    BASCULE_ASSIGN(const Digest digest,
                   reader.digest({.slot = kSlot, .bytes = bytes, .device = context.device}, Deadline(kPatience)));
    made->publication_ = {.version = 0, .slot = kSlot, .bytes = bytes.size(), .digest = digest};

    const OfferedSlot offered{.id = kSlot, .memory = &made->slot_};
    BASCULE_ASSIGN(const Offer offer, made->sender_->admit(1, Hello{}, {&offered, 1}));
    ReceivedOffer received{.bytes = offer.bytes, .descriptors = {}, .slots = {kSlot}, .slot_bytes = bytes.size()};
    for (const int descriptor : offer.descriptors)
      received.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    made->reader_.emplace(scheme->make_receiver(endpoint), context.worker_device, 2);
    BASCULE_TRY(made->reader_->accept(std::move(received)));
    return made;
  }

  absl::StatusOr<Turn> copy() {
    ++publication_.version;
    const Clock::time_point start = Clock::now();
    BASCULE_ASSIGN(const SlotView copied, reader_->prepare(publication_, Deadline(kPatience)));
    const double seconds = seconds_between(start, Clock::now());
    reader_->release(copied.slot);
    if (copied.digest != publication_.digest) return absl::InternalError("what came is not what was sent");
    return Turn{.seconds = seconds, .stages = {}};
  }

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  std::unique_ptr<SenderTransport> sender_;
  SlotMemory slot_;
  Publication publication_;
  std::optional<DeviceCopies> reader_;
};

}  // namespace

absl::Status run_peer_copy(Context& context) {
  Record record = record_of(context, "peer_copy");
  record.bytes = context.options.bytes / size_of(DType::kBF16) * size_of(DType::kBF16);
  record.tensors = 1;
  record.workers = 1;
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const bool on_a_peer = context.gpu && context.worker_device != kHost && context.worker_device != context.device;
    if (!on_a_peer || !keeps_slots_on_gpu(context.sync.scheme))
      return unimplemented("only from slots on a GPU to a reader on its peer: --sync cuda-ipc --device cuda:0 ",
                           "--worker-device cuda:1");
    BASCULE_TRY(check_rig_fits(context, {.bytes = to.bytes, .tensors = 1}, to.bytes, to.bytes));
    BASCULE_ASSIGN(const std::unique_ptr<SlotAndReader> ours, SlotAndReader::make(context));
    BASCULE_ASSIGN(const std::shared_ptr<std::byte> source, context.gpu->allocate(to.bytes));
    BASCULE_TRY(context.gpu->write(
        Content(context.options.seed, 2).elements("source", to.bytes / 2, DType::kBF16, DType::kBF16), source.get()));
    BASCULE_TRY(context.gpu->wait());
    BASCULE_ASSIGN(const std::unique_ptr<PlainCopy> copy, copy_of(context, to.bytes));
    to.limit_name = copy->name();
    return take_turns(
        context, to, context.options.repeat, [&] { return ours->copy(); },
        [&] {
          return copy->run({source.get(), to.bytes});
        });
  });
}

}  // namespace bascule::bench
