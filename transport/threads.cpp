#include <bascule/transport/threads.h>

#include <sys/resource.h>

#include <string>
#include <system_error>

#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status no_threads(std::string_view whose, const std::exception& error) {
  std::string limits;
  const auto add = [&limits](const std::string& limit) { limits += cat(limits.empty() ? "" : ", ", limit); };
  const kernels::ControlGroupLimits group = kernels::control_group_limits();
  if (group.threads_limit)
    add(cat("the control group's pids.max ", *group.threads_limit, " (", *group.threads_left, " left)"));
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add(cat("RLIMIT_NPROC (ulimit -u) ", limit.rlim_cur, " threads of this user"));
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    add(cat("RLIMIT_AS (ulimit -v) ", limit.rlim_cur >> 10, " KiB"));
  const bool of_thread = dynamic_cast<const std::system_error*>(&error) != nullptr;
  return absl::ResourceExhaustedError(cat(whose, of_thread ? ": no thread can be started: " : ": ", error.what(),
                                          "; the limits here are ",
                                          limits.empty() ? "the system's (kernel.threads-max)" : limits,
                                          "; raise the one that was reached, or use fewer threads"));
}

}  // namespace bascule::inline v0
