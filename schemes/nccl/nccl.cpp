#include <bascule/schemes/nccl/nccl.h>

#include <utility>

#include <bascule/kernels/digest.h>
#include <bascule/schemes/nccl/cuda_place.h>
#include <bascule/schemes/nccl/options.h>
#include <bascule/schemes/nccl/receiver.h>
#include <bascule/schemes/nccl/sender.h>
#include <bascule/transport/device.h>

namespace bascule::inline v0 {
namespace nccl {
namespace {

static_assert(kPieceBytes % kernels::kTileBytes == 0);

absl::Status usable() {
  absl::Status cuda = why_no_cuda();
  return cuda.ok() ? load().status() : cuda;
}

}  // namespace

Scheme scheme_on(const Dependencies& dependencies) {
  return {
      .name = "nccl",
      .needs_descriptors = false,
      .on_device = true,
      .to_own_memory = true,
      .options = {kCtas},
      .make_sender = [dependencies](const Endpoint& endpoint, Epoch) { return Sender::make(dependencies, endpoint); },
      .make_receiver =
          [dependencies](const Endpoint& endpoint) { return std::make_unique<Receiver>(dependencies, endpoint); }};
}

}  // namespace nccl

Scheme nccl_scheme() {
  Scheme scheme = nccl::scheme_on({.library = nccl::load, .place = nccl::cuda_place, .piece_bytes = nccl::kPieceBytes});
  scheme.usable = nccl::usable;
  return scheme;
}

}  // namespace bascule::inline v0
