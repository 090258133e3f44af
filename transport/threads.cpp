#include <bascule/transport/threads.h>

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <boost/system/system_error.hpp>

#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

namespace {

// The errno that `error` reports, if it is a call of the system that failed; 0: another error.
int errno_of(const std::exception& error) {
  if (const auto* const system = dynamic_cast<const std::system_error*>(&error)) return system->code().value();
  if (const auto* const asio = dynamic_cast<const boost::system::system_error*>(&error)) return asio->code().value();
  return 0;
}

}  // namespace

absl::Status no_threads(std::string_view whose, const std::exception& error) {
  const int number = errno_of(error);
  if (number != 0 && number != EAGAIN) return errno_status(number, whose);  // EAGAIN: no further thread
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
  return absl::ResourceExhaustedError(cat(whose, number == EAGAIN ? ": no thread can be started: " : ": ", error.what(),
                                          "; the limits here are ",
                                          limits.empty() ? "the system's (kernel.threads-max)" : limits,
                                          "; raise the one that was reached, or use fewer threads"));
}

}  // namespace bascule::inline v0
