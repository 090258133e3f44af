#include <bascule/schemes/cuda_ipc/cuda_ipc.h>
#include <bascule/schemes/cuda_ipc/offer.h>
#include <bascule/schemes/relay/options.h>

namespace bascule::inline v0 {

Scheme cuda_ipc_facts() {
  return {.name = "cuda-ipc",
          .needs_descriptors = true,
          .maps_once = true,
          .on_device = true,
          .hands_on = true,
          .region_granule = kRegionGranule,
          .options = relay::options(),
          .make_sender = {},
          .make_receiver = {}};
}

}  // namespace bascule::inline v0
