#include <bascule/transport/descriptor_limit.h>

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

std::size_t share_of_descriptors(std::size_t most, std::size_t part) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::min<std::size_t>(most, limit.rlim_cur / part);
}

int why_no_descriptor() {
  const UniqueFd any(::open("/", O_PATH | O_CLOEXEC));
  return any ? 0 : errno;
}

}  // namespace bascule::inline v0
