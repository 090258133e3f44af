// The number of GPUs, for tests that need some. A test that finds too few GPUs is skipped, and counted as skipped.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace bascule::test {

inline int gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

}  // namespace bascule::test

#define BASCULE_NEEDS_GPUS(count)        \
  if (::bascule::test::gpus() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " GPU(s), found " << ::bascule::test::gpus()
