// A flag type for sizes: --cache-bytes=256MiB.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bascule::inline v0 {

struct ByteSize {
  std::int64_t bytes = 0;
};

// Sizes are a whole number with an optional unit: B, KiB, MiB, GiB (powers of 1024) or KB, MB, GB (powers of 1000).
// NOLINTBEGIN(readability-identifier-naming): Abseil's hooks
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(const ByteSize& size);
// NOLINTEND(readability-identifier-naming)

}  // namespace bascule::inline v0
