#include <bascule/kernels/pack_device.cuh>

namespace bascule::inline v0::kernels::cuda {

PackKernel irregular_kernel() { return pack_tiles<PackKind::kIrregular>; }

}  // namespace bascule::inline v0::kernels::cuda
