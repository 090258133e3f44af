// cuda-ipc in a build without CUDA: its facts, and the reason why it cannot be used.
#include <bascule/schemes/cuda_ipc/cuda_ipc.h>
#include <bascule/transport/device.h>

namespace bascule::inline v0 {

Scheme cuda_ipc_scheme() {
  Scheme scheme = cuda_ipc_facts();
  scheme.usable = why_no_cuda;
  return scheme;
}

}  // namespace bascule::inline v0
