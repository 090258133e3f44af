#include <bascule/transport/program/descriptors.h>

#include <sys/resource.h>

#include <algorithm>

namespace bascule::inline v0 {

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 1 << 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace bascule::inline v0
