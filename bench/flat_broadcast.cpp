#include <bascule/bench/flat_broadcast.h>

#include <array>
#include <future>
#include <numeric>
#include <utility>

#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/cuda_place.h>
#include <bascule/schemes/nccl/environment.h>
#include <bascule/schemes/nccl/library.h>
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/schemes/nccl/options.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using Promise = std::shared_ptr<std::promise<absl::Status>>;  // its holders may outlive an error here
Promise make_promise() { return std::make_shared<std::promise<absl::Status>>(); }

class FlatBroadcast final : public PlainCopy {
 public:
  static absl::StatusOr<std::unique_ptr<PlainCopy>> make(int device, int peer, std::vector<std::uint64_t> sizes,
                                                         int ctas, std::uint64_t piece_bytes) {
    const std::uint64_t bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    auto made = std::make_unique<FlatBroadcast>();
    made->name_ = cat(sizes.size() == 1 ? "one" : cat(sizes.size(), " times"), " ncclBroadcast",
                      ctas > 0 ? cat(", ctas=", ctas) : "");
    made->sizes_ = std::move(sizes);
    made->piece_bytes_ = piece_bytes;
    BASCULE_ASSIGN(const nccl::Library* const library, nccl::load());
    BASCULE_TRY(nccl::read_environment(*library).status());
    nccl::UniqueId id;
    if (const nccl::Code drawn = library->get_unique_id(&id); drawn != nccl::Code::kSuccess)
      return unavailable("create an id of NCCL: ", library->error_string(drawn));
    const std::array<int, 2> devices = {device, peer};
    std::array<Promise, 2> joined = {make_promise(), make_promise()};
    for (int rank = 0; rank < 2; ++rank) {
      End& end = made->ends_[static_cast<std::size_t>(rank)];
      BASCULE_ASSIGN(std::shared_ptr<nccl::Place> place, nccl::cuda_place(devices[static_cast<std::size_t>(rank)]));
      BASCULE_ASSIGN(end.memory, place->allocate(bytes, "the baseline"));
      end.communicator = std::make_unique<nccl::Communicator>(
          *library, std::move(place), nccl::Rank{.group = 1, .rank = rank, .ranks = 2, .id = id},
          nccl::Communicator::Options{.max_ctas = ctas},
          nccl::Communicator::Handlers{.made = [promise = joined[static_cast<std::size_t>(rank)]](
                                                   absl::Status status) { promise->set_value(std::move(status)); },
                                       .ended = [done = end.ended] { done->set_value(); }});
    }
    for (const Promise& each : joined) BASCULE_TRY(each->get_future().get());
    BASCULE_TRY(made->run({made->ends_[0].memory.get(), bytes}).status());
    return made;
  }
  ~FlatBroadcast() override {
    for (End& end : ends_) {
      if (!end.communicator) continue;
      end.communicator->abort();
      end.ended->get_future().wait_for(std::chrono::seconds(10));
    }
  }

  const std::string& name() const override { return name_; }
  absl::StatusOr<double> run(std::span<const std::byte> source) override {
    const Clock::time_point start = Clock::now();
    std::uint64_t from = 0;
    for (const std::uint64_t bytes : sizes_) {
      BASCULE_TRY(broadcast(source.data() + from, from, bytes));
      from += bytes;
    }
    return seconds_between(start, Clock::now());
  }

 private:
  struct End {
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<std::promise<void>> ended = std::make_shared<std::promise<void>>();
    std::unique_ptr<nccl::Communicator> communicator;
  };

  absl::Status broadcast(const std::byte* source, std::uint64_t target, std::uint64_t bytes) {
    std::array<Promise, 2> done = {make_promise(), make_promise()};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      // Rank 0 only reads.
      std::shared_ptr<std::byte> memory(rank == 0 ? nullptr : ends_[rank].memory,
                                        rank == 0 ? const_cast<std::byte*>(source) : ends_[rank].memory.get() + target);
      ends_[rank].communicator->broadcast({.number = 1,
                                           .memory = std::move(memory),
                                           .bytes = bytes,
                                           .from = 0,
                                           .piece_bytes = piece_bytes_ > 0 ? piece_bytes_ : bytes,
                                           .written = {},
                                           .enqueued = {},
                                           .done = [promise = done[rank]](absl::Status status, std::uint64_t) {
                                             promise->set_value(std::move(status));
                                           }});
    }
    for (const Promise& each : done) BASCULE_TRY(each->get_future().get());
    return absl::OkStatus();
  }

  std::string name_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t piece_bytes_ = 0;
  std::array<End, 2> ends_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlainCopy>> make_flat_broadcast(const Context& context, std::vector<std::uint64_t> sizes,
                                                               bool in_pieces) {
  const int device = context.device, peer = context.worker_device;
  if (peer == kHost || device == peer)
    return unimplemented("over nccl, engines are on other GPUs: --device cuda:0 --worker-device cuda:1");
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(context.sync.endpoint(context.folder, "")));
  return FlatBroadcast::make(device, peer, std::move(sizes), nccl::kCtas.in(endpoint).value_or(0),
                             in_pieces ? nccl::kPieceBytes : 0);
}

}  // namespace bascule::bench
