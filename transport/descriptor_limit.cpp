#include <bascule/transport/descriptor_limit.h>

#include <sys/resource.h>

#include <algorithm>

namespace bascule::inline v0 {

std::size_t share_of_descriptors(std::size_t most, std::size_t part) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::min<std::size_t>(most, limit.rlim_cur / part);
}

}  // namespace bascule::inline v0
