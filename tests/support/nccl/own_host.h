// NCCL refuses two ranks of one host on one GPU. So each process of a test claims to be a separate host: the ranks
// connect by sockets, like ranks on different hosts (schemes/nccl/README.md), and one GPU is enough for all of them.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "support/timing.h"

namespace bascule::test {

// Returns true if NCCL moves the bytes: with nccl, and with auto if there are other hosts.
inline bool is_nccl(std::string_view endpoint) {
  return endpoint.starts_with("nccl:") || endpoint.starts_with("auto://127.") ||
         (endpoint.starts_with("auto:") && endpoint.find("listen=") != std::string_view::npos);
}

// Call it before the process's first call of NCCL.
inline void be_a_separate_host(std::string_view endpoint) {
  if (!is_nccl(endpoint)) return;
  ::setenv("NCCL_HOSTID", ("test-" + std::to_string(::getpid())).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  for (const char* off : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}) ::setenv(off, "1", 1);
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  ::setenv(kSlownessVariable, "8", 0);  // a communicator takes a second to make
}

}  // namespace bascule::test
