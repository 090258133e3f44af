#include <bascule/bench/own_host.h>

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr char kHostId[] = "NCCL_HOSTID";
constexpr std::string_view kOurs = "bascule-bench-";

}  // namespace

void be_own_host() {
  ::setenv(kHostId, cat(kOurs, ::getpid()).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  for (const char* off : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}) ::setenv(off, "1", 1);
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
}

void be_own_host_as_driver() {
  const char* const drivers = std::getenv(kHostId);
  if (drivers != nullptr && std::string_view(drivers).starts_with(kOurs)) be_own_host();
}

}  // namespace bascule::bench
