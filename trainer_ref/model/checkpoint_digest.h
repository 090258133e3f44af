// What a checkpoint's weights are, in 128 bits.
#pragma once

#include <filesystem>
#include <functional>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>

namespace bascule::ref {

// The digest of all weights in a checkpoint's folder: of their names, types, shapes and every byte, whichever files
// they lie in. Reads them all, on all cores. Returns the errors of weight_files(), and CANCELLED if `interrupted`,
// which is called between tensors, returns true.
absl::StatusOr<Digest> checkpoint_digest(const std::filesystem::path& folder,
                                         const std::function<bool()>& interrupted = {});

}  // namespace bascule::ref
