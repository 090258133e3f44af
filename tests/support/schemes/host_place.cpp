#include "support/schemes/host_place.h"

#include <utility>

#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

class HostLane final : public nccl::Lane {
 public:
  Stream stream() const override { return stream_; }
  absl::StatusOr<std::unique_ptr<DeviceMark>> mark() override {
    std::unique_ptr<DeviceMark> made = FakeNccl::instance().make_mark();
    BASCULE_TRY(made->record(stream_));
    return made;
  }

 private:
  const Stream stream_ = FakeNccl::instance().make_stream();
};

class HostDigester final : public nccl::Digester {
 public:
  absl::Status digest(Stream stream, std::span<const std::byte> slot, std::uint64_t, std::uint64_t end) override {
    if (end < slot.size()) return absl::OkStatus();
    slot_ = slot;
    mark_ = stream != nullptr ? FakeNccl::instance().mark(stream) : nullptr;
    return absl::OkStatus();
  }
  absl::StatusOr<Digest> finish(Deadline deadline) override {
    if (mark_) BASCULE_TRY(mark_->wait(deadline));
    return kernels::digest(slot_, pool_);
  }

 private:
  std::span<const std::byte> slot_;
  std::shared_ptr<DeviceMark> mark_;
  kernels::ThreadPool pool_{1};
};

}  // namespace

absl::StatusOr<SlotMemory> HostPlace::make_slot(std::uint64_t bytes) { return make_memfd("bascule-nccl", bytes); }

absl::StatusOr<std::shared_ptr<std::byte>> HostPlace::allocate(std::uint64_t bytes, std::string_view what) {
  if (refuses_memory_) return absl::ResourceExhaustedError(cat("no memory for ", what));
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const auto lines = std::make_shared<std::vector<Line>>(bytes / sizeof(Line) + 1);
  return std::shared_ptr<std::byte>(lines, lines->front().bytes);
}

absl::StatusOr<std::unique_ptr<nccl::Lane>> HostPlace::open_lane(bool) {
  auto lane = std::make_unique<HostLane>();
  const std::lock_guard lock(mutex_);
  streams_.push_back(lane->stream());
  return lane;
}

std::vector<Stream> HostPlace::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_;
}

absl::StatusOr<std::unique_ptr<nccl::Digester>> HostPlace::open_digester() { return std::make_unique<HostDigester>(); }

Scheme host_nccl_scheme(std::shared_ptr<nccl::Place> place, const nccl::CommGroupLimits& limits) {
  Scheme scheme = nccl::scheme_on({.library = [] { return &FakeNccl::instance().library(); },
                                   .place = [place = std::move(place)](int) { return place; },
                                   .piece_bytes = kHostPiece,
                                   .limits = limits});
  scheme.name = "host-nccl";
  scheme.on_device = false;
  return scheme;
}

const Scheme& host_nccl_scheme() {
  static const Scheme made = [] {
    Scheme scheme = host_nccl_scheme(nullptr);
    scheme.make_sender = [](const Endpoint& endpoint, Epoch epoch) {
      return host_nccl_scheme(std::make_shared<HostPlace>()).make_sender(endpoint, epoch);
    };
    scheme.make_receiver = [](const Endpoint& endpoint) {
      return host_nccl_scheme(std::make_shared<HostPlace>()).make_receiver(endpoint);
    };
    return scheme;
  }();
  return made;
}

}  // namespace bascule::test
