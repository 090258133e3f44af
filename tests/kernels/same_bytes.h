// Compares bytes in one call: == of vectors of std::byte, and std::mismatch, go byte by byte, which takes most of a
// sanitized test's time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace bascule::inline v0::kernels {

inline testing::AssertionResult same_bytes(std::span<const std::byte> expected, std::span<const std::byte> found) {
  if (expected.size() != found.size())
    return testing::AssertionFailure() << "expected " << expected.size() << " bytes, found " << found.size();
  if (expected.empty() || std::memcmp(expected.data(), found.data(), expected.size()) == 0)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "first difference at byte "
                                     << std::ranges::mismatch(expected, found).in1 - expected.begin();
}

}  // namespace bascule::inline v0::kernels
