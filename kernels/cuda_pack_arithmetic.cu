#include <bascule/kernels/pack_device.cuh>

namespace bascule::inline v0::kernels::cuda {

PackKernel computing_kernel() { return pack_tiles<PackKind::kComputes>; }

}  // namespace bascule::inline v0::kernels::cuda
