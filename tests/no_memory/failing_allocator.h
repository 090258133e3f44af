// An allocator that fails on purpose: this program's global operator new throws std::bad_alloc at the n-th call, once.
#pragma once

#include <cstddef>

namespace bascule::test {

void fail_at(std::size_t n);  // this thread's n-th allocation after this call
bool stop_failing();          // on this thread; returns whether it has failed since fail_at()

std::size_t failures();  // of all threads so far

// The same for all threads together, except those that called spare_thread().
void fail_anywhere_at(std::size_t n);
bool stop_failing_anywhere();
void spare_thread();

}  // namespace bascule::test
