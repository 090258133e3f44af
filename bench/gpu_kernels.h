// The kernels of gpu.h. Addresses of the device that is current, whose default stream they go to.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::bench {

void launch_write(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, std::byte* to);
// Lowers *wrong to the number of the first element that is wrong.
void launch_compare(std::uint32_t first_word, std::uint64_t count, DType trainer, DType memory, const std::byte* with,
                    unsigned long long* wrong);
// Reads 16 bytes at a time, what is left of them not at all; `data` is aligned to them.
void launch_read(const std::byte* data, std::uint64_t bytes, unsigned* sink);

}  // namespace bascule::bench
