// Finds the tensors of a slot that became infinite when they were cast to F16, whose largest number is 65,504.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/layout.h>

namespace bascule::inline v0 {

// Names each of the `tensors`, all of type F16, that has an infinite element. Reads them once, with all threads.
std::vector<std::string> with_infinities(std::span<const Placement> tensors, std::span<const std::byte> slot,
                                         kernels::ThreadPool& pool);

}  // namespace bascule::inline v0
