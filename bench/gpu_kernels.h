// The kernels of gpu.h. They run on the current device's default stream, and addresses are that device's.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::bench {

void launch_write(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, std::byte* to);
// Lowers *wrong to the index of the first wrong element.
void launch_compare(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, const std::byte* with,
                    unsigned long long* wrong);
// Reads 16 bytes at a time and skips a shorter rest. `data` must be aligned to 16 bytes.
void launch_read(const std::byte* data, std::uint64_t bytes, unsigned* sink);

}  // namespace bascule::bench
