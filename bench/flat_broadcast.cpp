#include <bascule/bench/flat_broadcast.h>

#include <array>
#include <future>
#include <utility>

#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/cuda_place.h>
#include <bascule/schemes/nccl/environment.h>
#include <bascule/schemes/nccl/library.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/text.h>

namespace bascule::bench {
namespace {

class FlatBroadcast final : public PlainCopy {
 public:
  static absl::StatusOr<std::unique_ptr<PlainCopy>> make(int device, int peer, std::uint64_t bytes, int ctas,
                                                         std::uint64_t piece_bytes) {
    auto made = std::make_unique<FlatBroadcast>();
    made->bytes_ = bytes;
    made->piece_bytes_ = piece_bytes;
    made->name_ = cat("one ncclBroadcast", ctas > 0 ? cat(", ctas=", ctas) : "");
    BASCULE_ASSIGN(const nccl::Library* const library, nccl::load());
    BASCULE_TRY(nccl::read_environment(*library).status());
    nccl::UniqueId id;
    if (const nccl::Code drawn = library->get_unique_id(&id); drawn != nccl::Code::kSuccess)
      return unavailable("draw an id of NCCL: ", library->error_string(drawn));
    const std::array<int, 2> devices = {device, peer};
    std::array<std::promise<absl::Status>, 2> joined;
    for (int rank = 0; rank < 2; ++rank) {
      End& end = made->ends_[static_cast<std::size_t>(rank)];
      BASCULE_ASSIGN(std::shared_ptr<nccl::Place> place, nccl::cuda_place(devices[static_cast<std::size_t>(rank)]));
      BASCULE_ASSIGN(end.memory, place->allocate(bytes, "the limit"));
      end.communicator = std::make_unique<nccl::Communicator>(
          *library, std::move(place), nccl::Rank{.circle = 1, .rank = rank, .ranks = 2, .id = id},
          nccl::Communicator::Options{.max_ctas = ctas},
          nccl::Communicator::Handlers{.made = [&promise = joined[static_cast<std::size_t>(rank)]](
                                                   absl::Status status) { promise.set_value(std::move(status)); },
                                       .ended = [done = end.ended] { done->set_value(); }});
    }
    for (auto& each : joined) BASCULE_TRY(each.get_future().get());
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
    std::array<std::promise<absl::Status>, 2> done;
    const Clock::time_point start = Clock::now();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      // Rank 0 only reads.
      std::shared_ptr<std::byte> memory =
          rank == 0 ? std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), const_cast<std::byte*>(source.data()))
                    : ends_[rank].memory;
      ends_[rank].communicator->broadcast({.number = 1,
                                           .memory = std::move(memory),
                                           .bytes = bytes_,
                                           .from = 0,
                                           .piece_bytes = piece_bytes_ > 0 ? piece_bytes_ : bytes_,
                                           .written = {},
                                           .enqueued = {},
                                           .done = [&promise = done[rank]](absl::Status status, std::uint64_t) {
                                             promise.set_value(std::move(status));
                                           }});
    }
    for (auto& each : done) BASCULE_TRY(each.get_future().get());
    return seconds_between(start, Clock::now());
  }

 private:
  struct End {
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<std::promise<void>> ended = std::make_shared<std::promise<void>>();
    std::unique_ptr<nccl::Communicator> communicator;
  };
  std::string name_;
  std::uint64_t bytes_ = 0, piece_bytes_ = 0;
  std::array<End, 2> ends_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlainCopy>> make_flat_broadcast(int device, int peer, std::uint64_t bytes, int ctas,
                                                               std::uint64_t piece_bytes) {
  if (peer == kHost || device == peer)
    return unimplemented("over nccl engines are on other GPUs: --device cuda:0 --worker-device cuda:1");
  return FlatBroadcast::make(device, peer, bytes, ctas, piece_bytes);
}

}  // namespace bascule::bench
