// In a build without CUDA.
#include <bascule/schemes/nccl/cuda_place.h>

#include <bascule/transport/device.h>

namespace bascule::inline v0::nccl {

absl::StatusOr<std::shared_ptr<Place>> cuda_place(int) { return why_no_cuda(); }

}  // namespace bascule::inline v0::nccl
