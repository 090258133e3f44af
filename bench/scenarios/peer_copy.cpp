// peer_copy: a reader on a peer GPU copies a packed version over the link and digests it as it comes, compared with one
// cudaMemcpyPeerAsync of the same bytes.
#include <vector>

#include <bascule/bench/baselines.h>
#include <bascule/bench/content.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr absl::Duration kCopyPatience = absl::Seconds(30);

absl::Status fill(Context& context, std::string_view name, std::byte* to, std::uint64_t bytes) {
  const Content content(context.options.seed, 1);
  BASCULE_TRY(
      context.gpu->write(content.elements(name, bytes / size_of(DType::kBF16), DType::kBF16, DType::kBF16), to));
  return context.gpu->wait();
}

absl::StatusOr<std::optional<Digest>> digest_of(std::span<const std::byte> bytes, int device) {
  BASCULE_ASSIGN(const std::unique_ptr<DeviceQueue> queue, open_device(device));
  BASCULE_TRY(queue->digest(bytes, true, std::nullopt));
  return queue->finish(Deadline(kCopyPatience));
}

// Two slots of a GPU, and the copy of a reader on its peer GPU. The slots' content differs, so that the bytes of one
// turn are wrong for the next. Copies like receiver/device_copies.h, but in one process.
class SlotsAndReader {
 public:
  static absl::StatusOr<SlotsAndReader> make(Context& context, std::uint64_t bytes) {
    SlotsAndReader made;
    made.bytes_ = bytes;
    BASCULE_ASSIGN(made.queue_, open_device(context.worker_device));
    BASCULE_ASSIGN(made.copy_, made.queue_->allocate(bytes, "the copy"));
    for (const std::string_view name : {"slot 0", "slot 1"}) {
      Slot slot;
      BASCULE_ASSIGN(slot.memory, share_with_peer(context.device, context.worker_device, bytes));
      BASCULE_TRY(fill(context, name, slot.memory.data.get(), bytes));
      BASCULE_ASSIGN(slot.digest, digest_of({slot.memory.data.get(), bytes}, context.device));
      BASCULE_ASSIGN(slot.window,
                     made.queue_->open_window({slot.memory.of_peer.get(), bytes}, context.device, Access::kReadOnly));
      made.slots_.push_back(std::move(slot));
    }
    return made;
  }

  absl::StatusOr<Turn> copy() {
    const Slot& slot = slots_[turns_++ % slots_.size()];
    const Clock::time_point start = Clock::now();
    BASCULE_TRY(queue_->copy_in(*slot.window, 0, bytes_, {copy_.get(), bytes_}, /*digesting=*/true));
    BASCULE_ASSIGN(const std::optional<Digest> copied, queue_->finish(Deadline(kCopyPatience)));
    const double seconds = seconds_between(start, Clock::now());
    if (!copied || copied != slot.digest)
      return absl::InternalError("the bytes that came are not the bytes that were sent");
    return Turn{.seconds = seconds, .stages = {}};
  }

 private:
  struct Slot {
    SharedMemory memory;
    std::optional<Digest> digest;
    std::shared_ptr<HostWindow> window;  // destroyed before the memory
  };
  std::uint64_t bytes_ = 0;
  std::size_t turns_ = 0;
  std::shared_ptr<std::byte> copy_;
  std::unique_ptr<DeviceQueue> queue_;
  std::vector<Slot> slots_;
};

}  // namespace

absl::Status run_peer_copy(Context& context) {
  Record record = record_of(context, "peer_copy");
  record.bytes = context.options.bytes / size_of(DType::kBF16) * size_of(DType::kBF16);
  record.tensors = 1;
  record.workers = 1;
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const bool on_a_peer = context.gpu && context.worker_device != kHost && context.worker_device != context.device;
    if (!on_a_peer || !context.slots_on_gpu)
      return unimplemented("only from slots on a GPU to a reader on its peer GPU: --sync ",
                           plainest_scheme(/*on_device=*/true).name, " --device cuda:0 --worker-device cuda:1");
    BASCULE_TRY(check_rig_fits(context, {.bytes = to.bytes, .tensors = 1}, to.bytes, to.bytes));
    BASCULE_ASSIGN(SlotsAndReader ours, SlotsAndReader::make(context, to.bytes));
    BASCULE_ASSIGN(const std::shared_ptr<std::byte> source, context.gpu->allocate(to.bytes));
    BASCULE_TRY(fill(context, "source", source.get(), to.bytes));
    BASCULE_ASSIGN(const std::unique_ptr<PlainCopy> copy, copy_of(context, to.bytes));
    to.baseline_name = copy->name();
    return take_turns(
        context, to, context.options.repeat, [&] { return ours.copy(); },
        [&] {
          return copy->run({source.get(), to.bytes});
        });
  });
}

}  // namespace bascule::bench
