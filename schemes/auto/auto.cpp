#include <bascule/schemes/auto/auto.h>

#include <bascule/schemes/cuda_ipc/cuda_ipc.h>
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

Scheme auto_scheme() {
  return auto_scheme_on({.slots = cuda_ipc_scheme(),
                         .others = nccl_scheme(),
                         .open_queue = open_device,
                         .reads_on_host = [](const Endpoint& endpoint) { return endpoint.device == kHost; }});
}

}  // namespace bascule::inline v0
