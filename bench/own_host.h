// Processes that are hosts of their own to NCCL, on one machine (--own-hosts): ranks reach each other as between hosts,
// by sockets over the loopback, and one GPU is enough for all of them. schemes/nccl/README.md names the variables.
#pragma once

namespace bascule::bench {

// Before the process's first call of NCCL.
void be_own_host();

// The same in a process that the driver started, if the driver is one.
void be_own_host_as_driver();

}  // namespace bascule::bench
