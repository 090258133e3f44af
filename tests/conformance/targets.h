// Targets of the conformance tests: a worker's tensors in a test's memory, and both values of Apply, which says when
// versions are copied into them.
#pragma once

#include <memory>
#include <vector>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>

namespace bascule::test {

inline constexpr Apply kBoth[] = {Apply::kCommit, Apply::kBackground};

inline const char* name_of(Apply apply) { return apply == Apply::kCommit ? "commit" : "background"; }

inline std::vector<TargetTensor> targets_of(const std::vector<TensorSpec>& specs, std::shared_ptr<std::byte>& memory,
                                            int device) {
  std::vector<std::size_t> offsets;
  std::size_t end = 0;
  for (const TensorSpec& spec : specs) {
    offsets.push_back(end);
    end += (byte_count(spec.dtype, spec.shape) + 7) / 8 * 8;  // each aligned to its element
  }
  memory = bytes_on(device, end);
  std::vector<TargetTensor> targets;
  for (std::size_t i = 0; i < specs.size(); ++i)
    targets.push_back({.name = specs[i].name,
                       .dtype = specs[i].dtype,
                       .shape = specs[i].shape,
                       .data = memory.get() + offsets[i],
                       .device = device});
  return targets;
}

}  // namespace bascule::test
