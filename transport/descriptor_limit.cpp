#include <bascule/transport/descriptor_limit.h>

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

std::string which_descriptor_limit(int error) {
  rlimit limit{};
  if (error == ENFILE)
    return "; the system's limit, fs.file-max, is reached: raise it, or close files of other programs";
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return cat("; RLIMIT_NOFILE (ulimit -n) of this process is ", limit.rlim_cur, ": raise it before the program starts",
             limit.rlim_cur < limit.rlim_max ? cat(", to at most ", limit.rlim_max, " without a privilege") : "");
}

std::size_t share_of_descriptors(std::size_t most, std::size_t part) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::min<std::size_t>(most, limit.rlim_cur / part);
}

}  // namespace bascule::inline v0
