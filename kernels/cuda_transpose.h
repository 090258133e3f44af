// Packs the tiles of TilePath::kTransposed; a part of cuda_pack.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/cuda_table.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels::cuda {

// Enqueues the pack of those among tiles [first, last). `sums`: of the pages of all such tiles of the table, on the
// device, with zeros; not used without a digest.
CudaResult pack_transposed(const DeviceTable& table, std::byte* slot, std::uint64_t first, std::uint64_t last,
                           PageSums* sums, const DigestOutput& target, Stream stream);

}  // namespace bascule::inline v0::kernels::cuda
