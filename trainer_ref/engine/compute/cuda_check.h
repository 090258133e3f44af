// CUDA's errors as exceptions, like LibTorch's.
#pragma once

#include <stdexcept>

#include <bascule/kernels/cuda_result.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

inline void check(const kernels::cuda::CudaResult& result) {
  if (!result.ok())
    throw std::runtime_error(
        cat(result.call, " failed with error ", result.code, " of CUDA (", result.file, ":", result.line, ")"));
}

}  // namespace bascule::ref
