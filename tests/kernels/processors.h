// The implementations that this machine can run, whose results must be equal bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include <bascule/kernels/processor.h>

namespace bascule::inline v0::kernels {

// Under ThreadSanitizer an access costs as much as twenty, and finding races needs fewer rounds. AddressSanitizer looks
// for accesses out of bounds, which depend on layouts: it needs all kinds of them, but not as many numbers. Builds
// without sanitizers compare all results.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsInstrumented = true;
#else
inline constexpr bool kIsInstrumented = kIsSlow;
#endif

struct NamedProcessor {
  std::string name;
  const Processor* processor;
  friend std::ostream& operator<<(std::ostream& out, const NamedProcessor& named) { return out << named.name; }
};

inline std::vector<NamedProcessor> processors() {
  std::vector<NamedProcessor> all = {{"plain", &plain_processor()}};
  if (avx2_processor() != nullptr) all.push_back({"avx2", avx2_processor()});
  if (avx512_processor() != nullptr) all.push_back({"avx512", avx512_processor()});
  return all;
}

inline std::string name_of_case(const testing::TestParamInfo<NamedProcessor>& info) { return info.param.name; }

}  // namespace bascule::inline v0::kernels
